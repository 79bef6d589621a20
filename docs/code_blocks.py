"""Copy code of the package into the handbook, with its file and lines.

    python docs/code_blocks.py            # rewrites the copies in docs/handbook/*.md
    python docs/code_blocks.py --check    # lists the pages whose copies are out of date

A page names a function, a class or a method in a comment:

    <!-- code: clearformer/layers/attention.py attend -->

The block of Python and the line with its place that follow the comment are written by this script. A test checks that
they are up to date, so that the code of a chapter is the code of the library.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "handbook"
MARK = re.compile(r"<!-- code: (?P<file>\S+) (?P<name>[\w.]+) -->\n(?:```python\n.*?```\n\n\*From .*?\*\n)?", re.DOTALL)


def find(file: Path, name: str) -> tuple[int, int]:
    """Return the first and last line of a function, a class or a method such as `Block.forward`."""
    nodes: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    node: ast.FunctionDef | ast.ClassDef | None = None
    for part in name.split("."):
        matches = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part]
        if not matches:
            raise SystemExit(f"{file.relative_to(ROOT)} has no `{name}`")
        node = matches[0]
        nodes = node.body
    assert node is not None
    assert node.end_lineno is not None
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, node.end_lineno


def block(match: re.Match[str]) -> str:
    file, name = match["file"], match["name"]
    first, last = find(ROOT / file, name)
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    code = textwrap.dedent("\n".join(lines))
    place = f"*From [{file}](../../{file}), lines {first} to {last}.*"
    return f"<!-- code: {file} {name} -->\n```python\n{code}\n```\n\n{place}\n"


def refreshed(page: str) -> str:
    return MARK.sub(block, page)


def main() -> None:
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if refreshed(text) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(refreshed(text), encoding="utf-8")
    print(f"{len(stale)} of {len(list(PAGES.glob('*.md')))} pages out of date: {', '.join(stale) or 'none'}")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
