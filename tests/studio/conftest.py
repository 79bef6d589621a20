"""The studio as a user starts it, in Chromium. Every test fails on a console error or a request to elsewhere."""

import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearformer import fit
from clearformer.recipe import Recipe

from ..serve.media_models import write_media
from ..text_runs import write_text_runs
from .chromium import find_chromium, require_playwright

RECIPE = '[data]\n[data.train]\npath = "pairs.tsv"\n[model]\npreset = "transformer-tiny"\n[train]\nsteps = 400\n'


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders: two that are complete, one of another version, one half-written; and models in media/."""
    folder = tmp_path_factory.mktemp("runs")
    for name, speed in (("fast", 60.0), ("slow", 150.0)):
        write_run(folder / name, [record for step in range(10, 401, 10) for record in records(step, speed)])
    write_run(
        folder / "future",
        [*records(10, 60.0)],
        RECIPE.replace('preset = "transformer-tiny"', 'kind = "from-the-future"'),
    )
    half = write_run(folder / "half", [*records(10, 60.0)])
    with (half / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "kind": "tr')
    write_media(folder / "media")
    write_text_runs(folder)
    return folder


@pytest.fixture(scope="session")
def trained(runs: Path) -> Path:
    """A run that has been trained, with samples and histograms; `again` is a copy."""
    pairs = runs / "pairs.tsv"
    pairs.write_text("".join(f"cat {i}\tchat {i}\n" for i in range(60)))
    table = {
        "data": {"train": {"path": pairs}},
        "text": {"kind": "char"},
        "model": {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 14, "d_ff": 23, "n_heads": 7},
        "train": {"steps": 6, "tokens": 128, "log_every": 2, "validate_every": 2, "save_every": 6, "histograms": True},
        "evaluate": {"max_validation": 3},
    }
    fit.train(Recipe.parse(table, "test"), runs / "trained", device="cpu")
    shutil.copytree(runs / "trained", runs / "again")
    return runs / "trained"


def records(step: int, speed: float) -> Iterator[dict[str, Any]]:
    loss = 1 + 6 * math.exp(-step / speed)
    yield {"step": step, "kind": "train", "loss": loss, "grad_norm": 1 / loss, "tokens_per_s": 9000, "lr": step / 1e5}
    if step % 100 == 0:
        yield {"step": step, "kind": "valid", "loss": loss + 0.2, "bleu": 40 * (1 - math.exp(-step / speed))}


def write_run(folder: Path, lines: list[dict[str, Any]], recipe: str = RECIPE) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="session")
def url(runs: Path) -> Iterator[str]:
    """The URL that `clearformer studio` prints; at the end, Ctrl-C must end it cleanly, with a page still open."""
    command = [sys.executable, "-m", "clearformer", "studio", "--no-open", "--runs", str(runs)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    yield url
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=20)
    assert (server.returncode, errors) == (0, "")


@pytest.fixture(scope="session")
def chromium(url: str) -> Iterator[Any]:
    require_playwright()
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, url: str) -> Iterator[Any]:
    """A new window, and what it must not do: log an error, or ask another server."""
    from .driving import window

    with window(chromium, url) as page:
        yield page
