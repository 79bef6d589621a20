"""Build the site: the handbook, the other pages, and a reference made from the docstrings. Works offline.

    python docs/build.py [--out build/site]

The pages are copied to a folder of their own first. There, links that lead out of docs/ become plain text, since a
site has no source files, and the reference is added: one page per package, with the docstring and the signature of
every public function and class. Sphinx then builds the site, and any warning is an error.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS, PACKAGE = ROOT / "docs", ROOT / "clearformer"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CHAPTERS = ("attention", "transformer", "training", "pretraining", "road", "vision", "understanding")
COMING_FROM = ("from-opennmt", "from-fairseq", "from-huggingface", "from-nanogpt")


def localised(text: str, page: Path) -> str:
    """Return a page whose links stay inside the site: a link to another file of the repository becomes its label."""

    def replace(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        path = target.partition("#")[0]
        if "://" in target or not path:
            return match[0]
        file = (page.parent / path).resolve()
        is_page = file.suffix == ".md" and file.is_relative_to(DOCS.resolve())
        return match[0] if image or is_page else str(label)

    return LINK.sub(replace, text)


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def documented(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    for node in body:
        is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if is_public and ast.get_docstring(node):  # type: ignore[arg-type]
            yield node  # type: ignore[misc]


def fenced(language: str, text: str) -> str:
    return f"````{language}\n{text}\n````\n"


def described(node: ast.FunctionDef | ast.ClassDef, owner: str = "") -> Iterator[str]:
    yield f"{'####' if owner else '###'} {owner}{node.name}\n"
    yield fenced("python", signature(node))
    yield fenced("text", ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        for method in documented(node.body):
            yield from described(method, f"{node.name}.")


def reference(package: Path) -> str:
    """Return the page of a package: its modules in order, each with what its docstrings say."""
    name = ".".join(package.relative_to(ROOT).with_suffix("").parts)
    parts = [f"# {name}\n"]
    for file in [package] if package.is_file() else sorted(package.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = list(documented(tree.body))
        if nodes or ast.get_docstring(tree):
            parts.append(f"## {file.relative_to(ROOT).as_posix()}\n")
            parts.append(fenced("text", ast.get_docstring(tree) or ""))
            parts += [part for node in nodes for part in described(node)]
    return "\n".join(parts)


def packages() -> list[Path]:
    folders = [path for path in sorted(PACKAGE.iterdir()) if (path / "__init__.py").exists()]
    files = [path for path in sorted(PACKAGE.glob("*.py")) if path.stem not in ("__main__", "__init__")]
    return folders + files


def contents(title: str, names: list[str]) -> str:
    lines = "\n".join(names)
    return f"\n```{{toctree}}\n:caption: {title}\n:maxdepth: 1\n\n{lines}\n```\n"


def stage(folder: Path) -> None:
    """Write the sources of the site to a folder."""
    shutil.copytree(DOCS / "site", folder, dirs_exist_ok=True)
    shutil.copytree(DOCS / "images", folder / "images")
    pages = [*DOCS.glob("*.md"), *(DOCS / "handbook").glob("*.md")]
    for page in pages:
        copy = folder / page.relative_to(DOCS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(localised(page.read_text(encoding="utf-8"), page), encoding="utf-8")
    (folder / "api").mkdir()
    for package in packages():
        (folder / "api" / f"{package.stem}.md").write_text(reference(package), encoding="utf-8")
    index = (folder / "handbook" / "README.md").read_text(encoding="utf-8")
    (folder / "handbook" / "README.md").unlink()
    others = sorted(page.stem for page in DOCS.glob("*.md"))
    index = re.sub(r"\]\((?!\.\.|https?:)([\w-]+\.md)", r"](handbook/\1", index).replace("](../", "](")
    index += contents("Handbook", [f"handbook/{name}" for name in CHAPTERS])
    index += contents("Coming from", [f"handbook/{name}" for name in COMING_FROM])
    index += contents("Pages", others) + contents("Reference", [f"api/{package.stem}" for package in packages()])
    (folder / "index.md").write_text(index, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "sources"
        stage(sources)
        command = [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-b",
            "html",
            str(sources),
            str(given.out),
        ]
        code = subprocess.run(command).returncode
    if code == 0:
        print(f"The site is in {given.out}: open {given.out / 'index.html'}")
    sys.exit(code)


if __name__ == "__main__":
    main()
