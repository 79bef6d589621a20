"""Run the blocks of a page of the handbook, from top to bottom, in one folder and one Python session.

    python tests/handbook/blocks.py docs/handbook/attention.md           # what differs from the page
    python tests/handbook/blocks.py docs/handbook/attention.md --fill    # writes the outputs into the page

`pycon` blocks are sessions of Python, `console` blocks are commands after `$ `, each with its output. `…` stands for
any text within a line, and a line of `…` alone for any lines. A command without output on the page may print anything.
Blocks of `python` are copies of the package (docs/code_blocks.py) and are not run; `toml` blocks after a line such as
"`small.toml`:" are written to that file.
"""

import code
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"(?:`(?P<file>[\w.-]+)`:\n\n)?```(?P<kind>pycon|console|toml)\n(?P<body>.*?)```", re.DOTALL)


@dataclass
class Step:
    """One input of a block: its lines with prompts, and the output that the page shows."""

    prompt: str
    source: str
    expected: str


def steps(kind: str, body: str) -> list[Step]:
    first, more = (">>> ", "... ") if kind == "pycon" else ("$ ", "> ")
    found: list[Step] = []
    for line in body.splitlines():
        if line.startswith(first):
            found.append(Step(line, line[len(first) :], ""))
        elif line.startswith(more) or line == more.rstrip():
            found[-1].prompt += f"\n{line}"
            found[-1].source += f"\n{line[len(more) :]}"
        elif found:
            found[-1].expected += f"{line}\n"
    return found


class Session:
    """A folder, the names of a Python session, and commands that see the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, {"__name__": "__main__"}

    def run(self, kind: str, step: Step) -> str:
        """Return what a step prints."""
        return self.python(step.source) if kind == "pycon" else self.shell(step.source)

    def python(self, source: str) -> str:
        out = io.StringIO()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out):
                compiled = code.compile_command(source + "\n\n" if "\n" in source else source)
                assert compiled is not None, f"incomplete: {source}"
                exec(compiled, self.names)
        finally:
            os.chdir(before)
        return out.getvalue()

    def shell(self, source: str) -> str:
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", source],
            cwd=self.folder,
            env={**os.environ, "PATH": tools, "COLUMNS": "100", "OMP_NUM_THREADS": "1"},  # pages run side by side
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{source}\n{done.stdout}{done.stderr}"
        return done.stdout


def agrees(expected: str, printed: str) -> bool:
    """Whether an output is the one on the page."""
    lines = expected.splitlines()
    patterns = [r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\s*\n" for line in lines]
    ended = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    return re.fullmatch("".join(patterns), ended) is not None


def differences(page: str, session: Session) -> list[str]:
    """Run a page, and return each step whose output differs."""
    wrong = []
    for match in BLOCK.finditer(page):
        if match["kind"] == "toml":
            if match["file"]:
                (session.folder / match["file"]).write_text(match["body"], encoding="utf-8")
            continue
        for step in steps(match["kind"], match["body"]):
            printed = session.run(match["kind"], step)
            if not agrees(step.expected, printed) and (step.expected or match["kind"] == "pycon"):
                wrong.append(f"{step.prompt}\n--- on the page:\n{step.expected}--- printed:\n{printed}")
    return wrong


def filled(page: str, session: Session) -> str:
    """Return the page with the outputs that its steps print; an output with … is kept if it agrees."""

    def replace(match: re.Match[str]) -> str:
        if match["kind"] == "toml":
            if match["file"]:
                (session.folder / match["file"]).write_text(match["body"], encoding="utf-8")
            return match[0]
        body = ""
        for step in steps(match["kind"], match["body"]):
            printed = session.run(match["kind"], step)
            keeps = agrees(step.expected, printed) or (match["kind"] == "console" and not step.expected)
            body += f"{step.prompt}\n{step.expected if keeps else printed}"
        return match[0].replace(match["body"], body)

    return BLOCK.sub(replace, page)


def main() -> None:
    for name in (name for name in sys.argv[1:] if not name.startswith("--")):
        page: Any = Path(name)
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            if "--fill" in sys.argv:
                page.write_text(filled(text, Session(Path(folder))), encoding="utf-8")
            else:
                print(*differences(text, Session(Path(folder))), sep="\n\n")


if __name__ == "__main__":
    main()
