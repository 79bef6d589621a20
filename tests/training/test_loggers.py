"""Loggers: the real libraries, offline; the guard around them; callbacks."""

import json
import struct
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import clearformer
from clearformer.errors import ConfigError, MachineError
from clearformer.recipe import Recipe
from clearformer.training.config import TrainConfig
from clearformer.training.loggers import LOGGERS, Logger, Loggers
from clearformer.training.loggers import tensorboard as tensorboard_module

VALUES = {"loss": 0.5, "lr": 0.25}


class Kept(Logger):
    """Remembers its calls; it cannot replace a step, as MLflow and W&B cannot."""

    is_append_only = True

    def __init__(self) -> None:
        self.calls: list = []

    def begin(self, run):
        self.calls.append(("begin", run.step, run.id))
        return run.id or "first"

    def log(self, step, metrics):
        self.calls.append((step, dict(metrics)))

    def end(self, report):
        self.calls.append(("end", report))


class Broken(Kept):
    def log(self, step, metrics):
        super().log(step, metrics)
        raise OSError("No space left on device")


def test_names_are_given_as_a_list_or_as_text() -> None:
    assert TrainConfig.parse({"loggers": "tensorboard, mlflow"}).loggers == ("tensorboard", "mlflow")
    assert TrainConfig.parse({"loggers": ["wandb"], "tensorboard": True}).logger_names == ("wandb", "tensorboard")
    assert TrainConfig().logger_names == ()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no logger called `tensorbord`\nhint: did you mean `tensorboard`"):
        Loggers(["tensorbord"])


def test_a_missing_library_is_one_sentence_before_anything_is_read(tmp_path: Path, monkeypatch) -> None:
    def library(module, extra):
        raise MachineError(f"{extra} is not installed", f"pip install 'clearformer[{extra}]'")

    monkeypatch.setattr(tensorboard_module, "library", library)
    (tmp_path / "pairs.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(61)))
    with pytest.raises(MachineError, match=r"tensorboard is not installed\nhint: pip install 'clearformer\[tensorb"):
        clearformer.train(
            pairs=str(tmp_path / "pairs.tsv"),
            out=tmp_path / "run",
            settings=["train.loggers=tensorboard"],
            device="cpu",
        )
    assert not (tmp_path / "run").exists()


def test_a_logger_that_fails_is_dropped_with_one_warning(tmp_path: Path, capsys) -> None:
    broken, kept = Broken(), Kept()
    loggers = Loggers(callbacks=[broken, kept])
    loggers.begin(tmp_path, {}, 0, False)
    for step in (1, 2, 3):
        loggers.log(step, "train", VALUES)
    assert len(broken.calls) == 2  # begin, and the first step
    assert [call[0] for call in kept.calls] == ["begin", 1, 2, 3]
    assert capsys.readouterr().err.count("logs nothing from here on") == 1


def test_no_step_is_sent_twice_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    sent = []
    for start, last in ((0, 30), (20, 22), (20, 40)):  # each is resumed from the checkpoint of step 20
        kept = Kept()
        loggers = Loggers(callbacks=[kept])
        loggers.begin(tmp_path, {}, start, start > 0)
        assert kept.calls == [("begin", start, "first" if start else None)]
        for step in range(start + 1, last + 1):
            loggers.log(step, "train", VALUES)
            if step % 10 == 0:
                loggers.log(step, "valid", {"bleu": 3.0})
        loggers.end(None)
        sent += [(step, *metrics) for step, metrics in kept.calls[1:-1]]
    assert [row for row in sent if "valid/bleu" in row] == [(step, "valid/bleu") for step in (10, 20, 30, 40)]
    assert [row[0] for row in sent if "train/loss" in row] == list(range(1, 41))


def test_a_new_run_in_the_folder_begins_afresh(tmp_path: Path) -> None:
    for _ in range(2):
        kept = Kept()
        loggers = Loggers(callbacks=[kept])
        loggers.begin(tmp_path, {}, 0, False)
        assert kept.calls == [("begin", 0, None)]
        loggers.log(5, "train", VALUES)
        assert len(kept.calls) == 2


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 is not a callback"):
        Loggers(callbacks=[3])
    with pytest.raises(ConfigError, match="is not a callback"):
        Loggers(callbacks=[dict])


def test_a_plugin_registers_a_logger(monkeypatch) -> None:
    monkeypatch.setattr(LOGGERS, "added", {})
    clearformer.register("logger", "kept", Kept)
    assert isinstance(Loggers(["kept"]).entries[0].logger, Kept)


def test_a_logger_that_cannot_begin_stops_a_new_run_only(tmp_path: Path, capsys) -> None:
    class Refusing(Kept):
        def begin(self, run):
            raise ConnectionError("connection refused")

    with pytest.raises(MachineError, match="cannot log this run: connection refused"):
        Loggers(callbacks=[Refusing()]).begin(tmp_path, {}, 0, False)
    Loggers(callbacks=[Refusing()]).begin(tmp_path, {}, 7, True)
    assert "the run goes on: connection refused" in capsys.readouterr().err


# --- the libraries


def logged(name: str, folder: Path, *spans: tuple[int, int]) -> None:
    """A run with these parts, each resumed from the end of the one before."""
    tables = {"train": {"steps": 40, "loggers": [name]}, "model": {"kind": "gpt"}}
    for start, last in spans:
        loggers = Loggers([name])
        loggers.begin(folder, tables, start, start > 0)
        for step in range(start + 1, last + 1):
            loggers.log(step, "train", {"loss": step / 3})
        assert loggers.entries, "the logger was dropped"
        loggers.end({"steps": last, "test": {"bleu": 31.5, "rows": []}} if last == 40 else None)


def test_tensorboard_replaces_the_steps_after_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged("tensorboard", tmp_path, (0, 30), (20, 40))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted({event.step for event in events.Scalars("train/loss")}) == list(range(1, 41))


@pytest.mark.skipif(find_spec("mlflow") is None or find_spec("sqlalchemy") is None, reason="needs the extra mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_continues_the_same_run(tmp_path: Path, monkeypatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    try:
        logged("mlflow", tmp_path / "run", (0, 30), (20, 40))
        [run] = mlflow.search_runs(output_format="list")
        client = mlflow.MlflowClient()
        points = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "train/loss")]
    finally:
        mlflow.set_tracking_uri(before)
    assert sorted(points) == [(step, step / 3) for step in range(1, 41)]
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert run.data.metrics["test/bleu"] == 31.5
    assert (run.data.params["train.steps"], run.data.params["model.kind"]) == ("40", "gpt")
    assert json.loads((tmp_path / "run" / "loggers.json").read_text())["mlflow"]["id"] == run.info.run_id


def chunks(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file, which is a LevelDB log with a header of 7 bytes: checksum, length, kind, data."""
    place, record, block = 7, b"", 32768
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block  # the padding at the end of a block
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # full, or last
            yield record
            record = b""


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_logs_offline_under_one_id(tmp_path: Path, monkeypatch) -> None:
    import wandb
    from wandb.proto import wandb_internal_pb2

    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    logged("wandb", tmp_path, (0, 30))
    time.sleep(1.1)  # wandb names a folder by the second
    logged("wandb", tmp_path, (20, 40))
    wandb.teardown()  # its service writes the last records shortly after `finish` returns
    identifier = json.loads((tmp_path / "loggers.json").read_text())["wandb"]["id"]
    files = sorted(tmp_path.glob(f"wandb/offline-run-*-{identifier}/*.wandb"))
    assert len(files) == 2
    steps = []
    for file in files:
        for data in chunks(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.HasField("history"):
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                steps += [int(items["_step"])] if "train/loss" in items else []
    assert steps == list(range(1, 41))


def test_recipes_keep_the_names(tmp_path: Path) -> None:
    recipe = Recipe.parse(
        {"data": {"train": {"path": "a.tsv"}}, "model": {"kind": "transformer"}, "train": {"loggers": "mlflow"}}, "test"
    )
    (tmp_path / "recipe.toml").write_text(recipe.dump())
    assert Recipe.read(tmp_path / "recipe.toml").train.loggers == ("mlflow",)
