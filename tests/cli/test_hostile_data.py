"""Data without end, or of declared sizes, given to commands: one sentence, exit status 1, seconds, below 1 GB."""

import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak memory is measured as Linux reports it")
RUN = r"""
import contextlib, io, json, re, sys
from pathlib import Path
from clearformer.cli import main
for arguments in json.loads(sys.argv[1]):
    out, error, code = io.StringIO(), io.StringIO(), 0
    Path("/proc/self/clear_refs").write_text("5")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            sys.argv = ["clearformer", *arguments]
            main()
        except SystemExit as end:
            code = end.code
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps({"code": code, "out": out.getvalue(), "error": error.getvalue(), "bytes": peak}))
"""


def run_all(folder: Path, *commands: list[str]) -> list[dict[str, Any]]:
    """Run commands one after the other in one process. Returns what each said, and its peak memory."""
    environment = {**os.environ, "CLEARFORMER_CACHE": str(folder / "cache"), "COLUMNS": "1000"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        capture_output=True, text=True, timeout=240, cwd=folder, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(commands)
    return results


def refused(folder: Path, reason: str, *commands: list[str]) -> None:
    """Every command is one sentence and a hint, without a traceback."""
    for command, result in zip(commands, run_all(folder, *commands)):
        said = " ".join(result["error"].split())
        assert result["code"] == 1, (command, said)
        assert "Traceback" not in said, command
        assert reason in said, (command, said)
        assert said.count("hint: ") == 1, (command, said)
        assert result["bytes"] < 10**9, command


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [zero, os.mkfifo])
def test_what_has_no_end_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for name in ("a.tsv", "a.txt", "a.csv", "a.jsonl.gz", "a.npz", "a.wav"):
        make(tmp_path / name)
    (tmp_path / "clips.tsv").write_text("a.wav\thello\n")
    refused(
        tmp_path, "not a regular file",
        ["train", "--pairs", "a.tsv", "--out", "run"],
        ["train", "--text", "a.txt", "--out", "run"],
        ["train", "--labels", "a.csv", "--out", "run"],
        ["train", "--labels", "a.jsonl.gz", "--out", "run"],
        ["train", "--images", "a.npz", "--out", "run"],
        ["plan", "--pairs", "a.tsv"],
        ["data", "build", "--pairs", "a.tsv", "--out", "built"],
        ["data", "build", "--text", "a.txt", "--out", "built"],
    )  # fmt: skip
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").glob("*.safetensors"))


def test_a_line_of_100_mb_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "a.tsv", "wb") as file:
        for _ in range(100):
            file.write(b"a" * 10**6)
    (tmp_path / "a.txt").symlink_to("a.tsv")
    refused(
        tmp_path, "a line of more than 32 MiB",
        ["train", "--pairs", "a.tsv", "--out", "run"],
        ["train", "--text", "a.txt", "--out", "run"],
        ["train", "--labels", "a.tsv", "--out", "run"],
        ["data", "build", "--pairs", "a.tsv", "--out", "built"],
    )  # fmt: skip


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_an_image_of_a_declared_size_is_refused(tmp_path: Path) -> None:
    """60,000 × 60,000 pixels in a hundred bytes."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for n in range(3):
            (tmp_path / "photos" / name / f"{n}.png").write_bytes(data)
    refused(tmp_path, "more than 89,478,485 pixels", ["train", "--images", "photos", "--out", "run"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", "byte-bpe"])
def test_a_line_of_34_mb_with_spaces_is_a_document(tmp_path: Path, kind: str) -> None:
    """As text8: more than a line may have, and less than 1 GB to read, learn from, tokenise and store."""
    words = [f"{n:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for n in range(0, 10**6, 97)]
    n = 34 * 10**6
    with open(tmp_path / "text8.txt", "w") as file:
        for start in range(0, n, 10**6):
            file.write((" ".join(words[start % 31 :]) * 20)[: 10**6])
    settings = ["data.held_out=0.0001", f"text.kind={kind}", "text.vocab_size=300"]
    command = ["data", "build", "--out", "built"]
    if kind == "char":
        command = ["train", "--model", "gpt", "--out", "run", "--steps", "1", "--device", "cpu"]
        settings += ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=32"]
        settings += ["train.tokens=32"]
    command += ["--text", "text8.txt", *(part for setting in settings for part in ("--set", setting))]
    [result] = run_all(tmp_path, command)
    assert result["code"] == 0, result["error"]
    assert result["bytes"] < 10**9
    if kind == "char":
        assert f"train: {n - n // 10**4 + 1:,} tokens in 1 document" in result["error"]
