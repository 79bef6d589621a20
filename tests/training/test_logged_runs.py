"""Whole runs with MLflow and W&B, through `clearformer train`: what the libraries wrote is what metrics.jsonl has."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .test_loggers import chunks

SMALL = [
    "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=28", "model.d_ff=46", "model.n_heads=2",
    "model.max_length=67", "data.filter.max_tokens=61", "text.vocab_size=41", "train.steps=12", "train.log_every=3",
    "train.validate_every=6", "train.ema=0", "decode.beam=1", "train.tokens=257",
]  # fmt: skip
needs_mlflow = pytest.mark.skipif(
    find_spec("mlflow") is None or find_spec("sqlalchemy") is None, reason="needs the extra mlflow"
)
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")


def trained(folder: Path, logger: str, **variables: str) -> str:
    """Run `clearformer train` in a process without an API key, and return what it printed."""
    (folder / "pairs.tsv").write_text("".join(f"the dog {i}\tle chien {i}\n" for i in range(211)))
    command = [sys.executable, "-m", "clearformer", "train", "--pairs", "pairs.tsv", "--out", "run", "--device", "cpu"]
    settings = [word for setting in [*SMALL, f"train.loggers={logger}"] for word in ("--set", setting)]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
    environment = outer | {"NETRC": str(folder / "none"), "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [*command, *settings],
        cwd=folder,
        env=environment | {"PYTHONPATH": paths, "WANDB_ERROR_REPORTING": "false"} | variables,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (folder / "run" / "report.json").is_file()
    return result.stdout + result.stderr


def journal(run: Path) -> set[tuple[int, str, float]]:
    """All values of metrics.jsonl: (step, train/loss, 2.1), …"""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = {
        (row["step"], f"{row['kind']}/{name}", float(value))
        for row in rows
        for name, value in row.items()
        if name not in ("step", "kind", "time") and isinstance(value, int | float)
    }
    assert {name for _, name, _ in values} >= {"train/loss", "train/lr", "valid/bleu", "valid/loss"}
    return values


def wandb_values(folder: Path) -> set[tuple[int, str, float]]:
    """The metrics of the only offline run of W&B below a folder."""
    from wandb.proto import wandb_internal_pb2

    [file] = folder.glob("wandb/*-run-*/*.wandb")
    values = set()
    for data in chunks(file.read_bytes()):
        record: Any = wandb_internal_pb2.Record.FromString(data)
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            step = int(items["_step"])
            values |= {(step, name, float(text)) for name, text in items.items() if "/" in name}
    return values


@needs_mlflow
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_metrics_of_the_journal(tmp_path: Path) -> None:
    import mlflow

    trained(tmp_path, "mlflow", MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/runs.db")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/runs.db")
    [run] = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    names = [name for name in run.data.metrics if name.startswith(("train/", "valid/"))]
    points = {
        (point.step, name, point.value) for name in names for point in client.get_metric_history(run.info.run_id, name)
    }
    assert points == journal(tmp_path / "run")
    assert run.info.status == "FINISHED"
    assert run.data.params["train.steps"] == "12"


@needs_wandb
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_the_metrics_of_the_journal(tmp_path: Path) -> None:
    trained(tmp_path, "wandb")
    assert wandb_values(tmp_path / "run") == journal(tmp_path / "run")


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    taken.append(server.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in taken:
            connection.close()
    thread.join(5)


@needs_wandb
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_with_a_key_and_no_network_trains_offline(tmp_path: Path) -> None:
    """No server listens at the discard port."""
    printed = trained(tmp_path, "wandb", WANDB_API_KEY="a" * 40, WANDB_BASE_URL="http://127.0.0.1:9")
    assert " ".join(printed.split()).count("wandb logs offline, `wandb sync` uploads it later") == 1
    assert wandb_values(tmp_path / "run") == journal(tmp_path / "run")


@needs_wandb
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_with_a_server_that_does_not_answer_trains_offline(tmp_path: Path, silent_server: str) -> None:
    printed = trained(tmp_path, "wandb", WANDB_API_KEY="a" * 40, WANDB_BASE_URL=silent_server)
    assert " ".join(printed.split()).count("wandb logs offline, `wandb sync` uploads it later") == 1
    assert wandb_values(tmp_path / "run") == journal(tmp_path / "run")
