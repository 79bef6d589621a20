"""Every kind of file × every command with --input, and × evaluate; and every kind of list in Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer import fit
from clearformer.errors import ClearformerError

from .cells import REASONS, TASKS, documented, require_sentence
from .kinds import KINDS, MEMORIES, N, columns, compress, row_of, texts, write, write_wavs
from .test_objects import rows_of
from .test_training import train_in_python, written

pytestmark = pytest.mark.matrix
COMMANDS = {
    "translate": ("translation", "translation"),
    "classify": ("classification", "label"),
    "embed": ("classification", "embedding"),
    "score": ("causal-lm", "logprob"),
    "generate": ("causal-lm", "continuation"),
}
FEW = {"generate": ["--max-new", "2", "--temperature", "0"]}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run of each task that was trained for one step."""
    folders: dict[str, Path] = {}

    def run(task: str) -> Path:
        if task not in folders:
            folder = tmp_path_factory.mktemp("runs")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fit, "draw_curves", lambda *_: None)
                train_in_python(task, rows_of(task, folder / "files"), folder / "run")
            folders[task] = folder / "run"
        return folders[task]

    return run


def write_input(kind: str, folder: Path) -> Path:
    if kind.startswith("txt"):
        folder.mkdir()
        path = folder / f"lines.{kind}"
        path.write_bytes(compress(kind, "".join(f"{text}\n" for text in texts(kind)).encode()))
        return path
    if kind in MEMORIES:
        return write(kind, folder, columns("pairs", kind))
    if kind.startswith("conll"):
        return write(kind, folder, columns("words", kind))
    return write(kind, folder, {"id": list(map(str, range(N))), "text": texts(kind)})


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_an_input_or_refused(
    kind: str, command: str, runs: Callable[[str], Path], cli: Callable[..., Any], tmp_path: Path
) -> None:
    task, column = COMMANDS[command]
    path, out = write_input(kind, tmp_path / "data"), tmp_path / "out.jsonl"
    chosen = ["--column", "en"] if kind.startswith("tmx") else []
    result = cli(command, "--model", runs(task), "--input", path, "--out", out, *chosen, *FEW.get(command, []))
    verdict = documented()[row_of(kind)]["`--input`"]
    if verdict != "yes":
        assert result.code == 1
        require_sentence(result.err.partition("error: ")[2], REASONS[verdict.removeprefix("no")])
        assert not out.exists()
        return
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    if kind == "audio dataset":
        assert len(rows) == N
        return
    assert [next(row[name] for name in ("text", "prompt", "source", "en") if name in row) for row in rows] == texts(
        kind
    )
    assert all(column in row for row in rows)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["command", "python"])
def test_a_file_is_evaluated_or_refused(
    way: str, kind: str, task: str, runs: Callable[[str], Path], cli: Callable[..., Any], tmp_path: Path
) -> None:
    verdict = documented()[row_of(kind)][TASKS[task].title]
    if verdict == "–" or verdict == "no⁷" or kind in ("npz", "idx3-ubyte", "idx3-ubyte.gz"):
        pytest.skip("no such data, or no such classes")
    path, flag, run = written(kind, task, tmp_path), TASKS[task].flag, runs(task)
    error, report = None, dict[str, Any]()
    if way == "command":
        result = cli("evaluate", "--model", run, f"--{flag}", path, "--device", "cpu", "--json")
        assert (result.code == 0) == ("error: " not in result.err), result.err
        error = result.err.partition("error: ")[2] or None
        report = json.loads(result.out) if error is None else {}
    else:
        try:
            report = clearformer.evaluate(run, **{flag: path}, device="cpu")
        except ClearformerError as refusal:
            error = str(refusal)
    if verdict != "yes":
        assert error is not None
        require_sentence(error, REASONS[verdict.removeprefix("no")])
        return
    assert error is None, error
    numbers = {report.get(key) for key in ("sentences", "examples", "images", "words", "tokens")} - {None}
    if flag == "text":
        assert report["loss"] > 0
    else:
        assert numbers & {N, sum(map(len, columns("words", "jsonl")["tokens"]))}


def lists() -> dict[str, Callable[[list[str]], Any]]:
    import datasets
    import pandas
    import polars

    return {
        "list": list,
        "tuple": tuple,
        "generator": lambda texts: (text for text in texts),
        "numpy": np.array,
        "pandas": pandas.Series,
        "polars": polars.Series,
        "datasets": lambda texts: datasets.Dataset.from_dict({"text": texts})["text"],
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["list", "tuple", "generator", "numpy", "pandas", "polars", "datasets"])
def test_a_list_of_texts_in_python(kind: str, command: str, runs: Callable[[str], Path]) -> None:
    more: dict[str, Any] = {"generate": {"max_new": 2, "temperature": 0}}
    given = lists()[kind](texts("jsonl"))
    results = getattr(clearformer, command)(runs(COMMANDS[command][0]), given, **more.get(command, {}))
    assert len(results) == N


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wrong", [7, 0.5, None, object(), [7], [None], {"text": ["a"]}, b"a", [b"a"], len])
def test_a_wrong_list_is_one_sentence(wrong: Any, command: str, runs: Callable[[str], Path]) -> None:
    with pytest.raises(ClearformerError) as error:
        getattr(clearformer, command)(runs(COMMANDS[command][0]), wrong)
    require_sentence(error.value, "")


FORMATS = {
    "wav": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "flac": ["PCM_16", "PCM_24"],
    "ogg": ["VORBIS", "OPUS"],
    "mp3": ["MPEG_LAYER_III"],
    "aiff": ["PCM_16", "FLOAT"],
}


@pytest.mark.parametrize("channels", [1, 2])
def test_recordings_of_every_format(
    channels: int, runs: Callable[[str], Path], cli: Callable[..., Any], tmp_path: Path
) -> None:
    """One table with a recording of every format is trained on, and each is transcribed."""
    import soundfile

    samples = 0.3 * np.sin(np.arange(16000) / 7)
    sound, paths = np.stack([samples] * channels, 1), list[Path]()
    for ending, subtypes in FORMATS.items():
        for subtype in subtypes:
            paths.append(tmp_path / f"{subtype}.{ending}")
            soundfile.write(paths[-1], sound, 16000, subtype=subtype)
    rows = [(str(path), "été" if i % 2 else "là") for i, path in enumerate(paths)]
    train_in_python("ctc", rows, tmp_path / "run")
    recipe = clearformer.Recipe.read(tmp_path / "run" / "recipe.toml")
    assert [recording.text for recording in recipe.data.train.read()] == [text for _, text in rows]
    result = cli("transcribe", "--model", tmp_path / "run", *paths)
    assert result.code == 0, result.err
    assert len(result.out.splitlines()) == len(paths) == 15
    assert len(clearformer.transcribe(tmp_path / "run", [*paths, (samples, 16000)])) == 16
    write_wavs(tmp_path / "wavs")
    for wrong in (tmp_path / "wavs", tmp_path / "nothing.wav", Path(__file__)):
        refused = cli("transcribe", "--model", tmp_path / "run", wrong)
        assert refused.code == 1
        require_sentence(refused.err.partition("error: ")[2], "is a folder|does not exist|not a recording")
