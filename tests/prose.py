"""The project's prose, read from its source: counts of odd phrases, and random samples for a reader.

python tests/prose.py                         counts: phrases, identifiers, texts
python tests/prose.py --sample 50 --seed 1    messages, help and docstrings, drawn at random
python tests/prose.py --root OLDER_CHECKOUT   the same of another version
"""

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent / "clearformer"

PHRASES = re.compile(r"likewise|anew|so many|that of|those that|told|whatever becomes", re.IGNORECASE)
VAGUE = re.compile(r"(^|_)(found|told|said|own|made)(_|$)", re.IGNORECASE)
"""Identifiers that do not name a value; `unfold`, `knows` and `Crown` are no matches."""
GIVEN = {"connection_made"}  # methods whose names another library chose: asyncio

SPOKEN = {"say", "note", "warn", "print", "echo"}  # functions whose first argument a user reads
HELP = {"Field": "description", "Option": "help", "Argument": "help", "Flag": "help"}


class Text(NamedTuple):
    """One text that a person reads. `kind` is message, help or docstring."""

    kind: str
    where: str
    text: str


def modules(root: Path = PACKAGE) -> list[Path]:
    return sorted(root.rglob("*.py"))


def count_phrases(path: Path) -> int:
    return len(PHRASES.findall(path.read_text(encoding="utf-8")))


def vague_identifiers(path: Path) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    snake = ((token.string, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", token.string)) for token in tokens if token.type == 1)
    return [
        name
        for name, words in snake
        if VAGUE.search(words) and name not in GIVEN and not name.endswith("NotFoundError")
    ]


def texts(path: Path) -> Iterator[Text]:
    """Every message, help text and docstring of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from called(node, f"{path.name}:{node.lineno}")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            docstring = ast.get_docstring(node)
            if docstring:
                kind = "help" if is_command(node) else "docstring"
                yield Text(kind, f"{path.name}:{getattr(node, 'lineno', 1)}{heading(node)}", docstring)


def heading(node: ast.AST) -> str:
    """The line that a docstring is read with: the signature of a function, or the name of a class."""
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"\ndef {node.name}({ast.unparse(node.args)}){returns}"
    return f"\nclass {node.name}" if isinstance(node, ast.ClassDef) else ""


def is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(d) for d in node.decorator_list)


def called(node: ast.Call, where: str) -> Iterator[Text]:
    """The texts among the arguments of a call: an error and its hint, a line on the console, help of an option."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name.endswith("Error") and node.args:
        parts = [rendered(argument) for argument in node.args[:2]]
        if parts[0]:
            yield Text("message", where, "\nhint: ".join(part for part in parts if part))
    elif name in SPOKEN and node.args:
        text = rendered(node.args[0])
        if len(text.split()) > 2:
            yield Text("message", where, text)
    elif name in HELP:
        for keyword in node.keywords:
            if keyword.arg == HELP[name] and (text := rendered(keyword.value)):
                yield Text("help", where, text)
        if name in ("Option", "Flag") and len(node.args) > 2 and (text := rendered(node.args[2])):
            yield Text("help", where, text)


def rendered(node: ast.expr) -> str:
    """A string or f-string with its values as ‹expression›; empty for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"‹{ast.unparse(part.value)}›"  # type: ignore[attr-defined]
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return rendered(node.left) + rendered(node.right)
    if isinstance(node, ast.IfExp):
        return rendered(node.body) or rendered(node.orelse)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=PACKAGE.parent, help="a checkout  [default: this one]")
    parser.add_argument("--sample", type=int, metavar="N", help="print N texts drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    paths = modules(given.root / "clearformer")
    every = [text for path in paths for text in texts(path)]
    if given.sample:
        for number, text in enumerate(random.Random(given.seed).sample(every, given.sample), 1):
            print(f"--- {number}. {text.kind}, {text.where}\n{text.text}\n")
        return
    shown = [text for text in every if text.kind != "docstring"]
    print(f"{sum(map(count_phrases, paths)):5} phrases of the list in {len(paths)} files")
    print(f"{sum(len(PHRASES.findall(text.text)) for text in shown):5} of them in messages and help")
    print(f"{sum(len(vague_identifiers(path)) for path in paths):5} identifiers with found, told, said, own or made")
    for kind in ("message", "help", "docstring"):
        print(f"{sum(text.kind == kind for text in every):5} texts of kind {kind}")


if __name__ == "__main__":
    main()
