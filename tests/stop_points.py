"""End commands at every file operation, and look whether they can be repeated.

    python tests/stop_points.py FOLDER EVERY < commands.json

Reads a JSON list of [name, command, repeats]: a command line of clearformer with {out} for the folder to write, and
command lines that must succeed afterwards, each with a file of the folder that it needs ("" for none) and one that must
not be there. The command is run once in peace and then, in a fresh folder, once for each of its file operations,
which ends its process as kill -9 does. Prints a JSON object: by name, the number of stop points, how many repeats were
tried, and those that failed.

Torch is imported once; each command runs in a fork, so that hundreds of stop points take a minute.
"""

import io
import json
import os
import shutil
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink", "shutil.rmtree")


class FileOperations:
    """Counts the operations under a folder that change files, and ends the process before the k-th one."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.folder, self.last, self.n, self.is_on = str(folder), last, 0, True
        sys.addaudithook(self.see)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or not self.is_change(event, arguments):
            return
        self.n += 1
        if self.n == self.last:
            os._exit(137)

    def is_change(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            path, mode, flags = arguments
            writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or any(
                c in (mode or "") for c in "wax+"
            )
            return writes and self.is_inside(path)
        return event in CHANGES and any(self.is_inside(path) for path in arguments)

    def is_inside(self, path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(
            self.folder
        )


def run(command: list[str], folder: Path, last: int | None = None) -> tuple[int, int, str]:
    """Run a command in a fork; return its exit code, the number of its file operations, and what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code, said = 1, io.StringIO()
        operations = FileOperations(folder, last)
        try:
            with redirect_stderr(said), redirect_stdout(said):
                code = invoke(command)
        except BaseException:
            said.write(traceback.format_exc())
        operations.is_on = False
        os.write(writing, json.dumps([operations.n, said.getvalue()[-3000:]]).encode())
        os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    n, said = json.loads(answer) if answer else (0, "")
    return code, n, said


def invoke(command: list[str]) -> int:
    from clearformer.cli import app

    try:
        app(command, standalone_mode=False)
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException as error:
        if type(error).__name__ == "Exit":
            return int(error.exit_code)  # type: ignore[attr-defined]
        raise


def try_all(
    folder: Path, name: str, command: list[str], repeats: list[tuple[list[str], str, str]], every: int
) -> dict[str, Any]:
    """Stop a command at every operation, or at every n-th, and repeat it. Returns the counts and the failures."""
    (folder / name).mkdir(parents=True)
    code, n, said = run(filled(command, folder / name / "peace"), folder / name)
    assert code == 0, said
    failures, n_tried = [], 0
    for k in range(1, n + 1, every):
        stopped = folder / name / f"{k}"
        stopped.mkdir()
        code, _, said = run(filled(command, stopped / "out"), folder / name, k)
        assert code == 137, (k, said)
        for repeat, needed, absent in repeats:
            out = stopped / "out"
            if (needed and not (out / needed).exists()) or (absent and (out / absent).exists()):
                continue
            copy = Path(shutil.copytree(stopped, folder / name / "copy"))
            code, _, said = run(filled(repeat, copy / "out"), folder)
            left = [path.name for path in copy.rglob(".*")]
            if code or left:
                failures.append([k, repeat[:2], said if code else f"left over: {left}"])
            n_tried += 1
            shutil.rmtree(copy)
        shutil.rmtree(stopped)
    return {"points": n, "repeats": n_tried, "failures": failures}


def filled(command: list[str], out: Path) -> list[str]:
    return [part.replace("{out}", str(out)) for part in command]


def main() -> None:
    import torch

    import clearformer.cli.export
    import clearformer.cli.finetune
    import clearformer.cli.import_
    import clearformer.cli.train
    import clearformer.verbs.export
    import clearformer.verbs.finetune
    import clearformer.verbs.import_  # noqa: F401

    torch.set_num_threads(1)
    folder, every = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({name: try_all(folder, name, *more, every) for name, *more in json.load(sys.stdin)}))


if __name__ == "__main__":
    main()
