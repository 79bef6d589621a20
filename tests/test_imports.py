"""Arrows point one way: a room imports from lower ranks only, never from a sibling."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clearformer

PACKAGE = Path(clearformer.__file__).parent

RANKS = [
    [
        "errors",
        "version",
        "memory",
        "notebook",
        "signals",
        "small_files",
        "synonyms",
        "threads",
        "toolchain",
        "wording",
    ],
    ["checksums", "config", "registry", "metric"],
    ["disk"],
    ["text", "layers", "checkpoint", "bundled", "data.batch"],  # a Batch is what rooms exchange: models take it
    ["data", "models"],
    ["objectives", "generation", "tuning"],
    ["handles"],
    ["training", "evaluation", "interop", "plots", "lens"],
    ["tables"],
    ["tasks"],
    ["recipe"],
    ["loading", "claims"],
    ["fit", "comparison", "speed", "worked"],
    ["planning"],
    ["verbs"],
    ["deprecated", "estimator"],
    ["serve"],
    ["studio"],
    ["cli"],
    ["__main__"],
]
RANK = {room: rank for rank, rooms in enumerate(RANKS) for room in rooms}

MODULES = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """The first name of a module, except that `data.batch` is a room of its own."""
    return module if module in RANK else module.split(".")[0]


def imports(module: str) -> set[str]:
    """The modules of ours that this one imports, at its top or inside a function, such as {"layers.masks"}."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{module} imports by a relative name"
            inside = {f"{node.module}.{name.name}" for name in node.names}
            found |= {name if is_module(name) else node.module for name in inside}
    return {name.removeprefix("clearformer.") for name in found if name.split(".")[0] == "clearformer"}


def tree_of(module: str) -> ast.Module:
    """What a module runs; what only type checkers read is left out."""
    tree = ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    return tree


def listed(module: str) -> set[str]:
    """The modules that a registry table in this one names, as "clearformer.models.gpt:GPT", and would import."""
    return {
        node.value.split(":")[0].removeprefix("clearformer.")
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"clearformer(\.\w+)+:\w+", node.value)
    }


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__"])
def test_a_room_imports_from_lower_ranks_only(module: str) -> None:
    own = room(module)
    assert own in RANK, f"a new room: give `{own}` its rank"
    # The registry's own list says where tables are, for `register`, which only users call.
    for other in imports(module) | (listed(module) if module != "registry" else set()):
        assert room(other) == own or RANK[room(other)] < RANK[own], f"{module} imports {other}"


def test_no_modules_import_each_other() -> None:
    graph = {module.removesuffix(".__init__"): imports(module) for module in MODULES if module != "__init__"}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for other in sorted(graph.get(module, set())):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_front_door_opens_rooms_only_when_asked() -> None:
    look = "import sys, clearformer; print(*sorted(name for name in sys.modules if name.startswith('clearformer')))"
    loaded = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["clearformer", "clearformer.version"]
    assert imports("registry") == {"errors"}


def test_no_module_hides_a_function() -> None:
    """`import clearformer.load` would put the module where the function is; so there is no such module."""
    functions = {name for name in clearformer.__all__ if callable(getattr(clearformer, name))}
    assert {"load", "train", "finetune", "evaluate", "inspect", "doctor", "plan"} <= functions
    assert not functions & {path.stem for path in PACKAGE.iterdir()}


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, clearformer; print(*({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        clearformer.trian  # noqa: B018


def test_dir_lists_the_functions_and_no_modules() -> None:
    """In a new process: modules that other tests import must not matter, nor be shown once they are imported."""
    code = "import clearformer; clearformer.load; print(*(name for name in dir(clearformer) if name[0] != '_'))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert shown == sorted(set(clearformer.__all__) - {"__version__"})
    assert {"__doc__", "__file__", "__version__"} <= set(dir(clearformer))


def test_type_checkers_see_the_names_that_are_imported_at_run_time() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        [name] = node.names
        assert name.asname == name.name  # which marks it as public
        seen[name.name] = f"{node.module}:{name.name}"
    deprecated = {name: f"clearformer.deprecated:{name}" for name in clearformer._DEPRECATED}
    assert seen == clearformer._WHERE | deprecated


@pytest.mark.parametrize("name", sorted(set(clearformer.__all__) - {"__version__"}))
def test_every_function_says_what_it_does(name: str) -> None:
    assert len(str(getattr(clearformer, name).__doc__).split()) > 4


@pytest.mark.parametrize("name", clearformer.__all__)
def test_every_name_of_the_front_door_is_there(name: str) -> None:
    assert getattr(clearformer, name) is not None


def test_the_reader_of_imports_reads_them() -> None:
    """Without this, a reader that found nothing would make every rule hold."""
    assert {"data.batch", "layers.attention", "models.stack"} <= imports("models.transformer")
    assert "verbs.translate" in imports("cli.translate") | {"verbs.translate"}
    assert "verbs.train" in imports("cli.train")  # inside a function
    assert "tasks.translation" in listed("tasks.__init__")
    assert "models.gpt" in listed("models.__init__")
    assert room("data.batch") == "data.batch"
    assert room("data.collate") == "data"
