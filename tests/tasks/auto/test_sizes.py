"""What zero configuration chooses has no jumps. n grows by 1 % from 100 to ten million."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.data.corpora import SpeechCorpora
from clearformer.data.parallel import PairSurvey
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS
from clearformer.tasks.auto import common, images, labels, pairs, recordings, sizes, text
from clearformer.tasks.auto.sizes import Curve, even, image_sizes, label_sizes, pair_rate, pair_sizes, text_sizes
from clearformer.tasks.task import Request

NS = [round(100 * 1.01**i) for i in range(1158)]
TASK_NAMES = ("translation", "causal-lm", "classification", "image-classification", "ctc")


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a table, with its key. Micro-batches are joined: their size is a matter of memory."""
    if isinstance(value, dict):
        if "accumulation" in value:
            value = value | {"tokens": value["accumulation"] * value["tokens"], "accumulation": 1}
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from numbers(inner, f"{path}.{i}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def assert_no_jump(before: dict[str, float], after: dict[str, float], n: int) -> None:
    assert after.keys() == before.keys()
    for key, value in after.items():
        low, high = sorted((before[key], value))
        assert high <= low * (1.1 + 1e-9), f"{key} jumps from {before[key]} to {value} at n = {n:,}"


def fake_device(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    for module in (pairs, text, images, common):
        monkeypatch.setattr(module, "pick_device", lambda name: torch.device(device))


def request_for(device: str) -> Request:
    return Request({"train": {"path": Path("x.tsv")}}, None, [], device, Recipe.parse)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("n_chars", [23, 70])
def test_no_number_for_pairs_jumps(monkeypatch: pytest.MonkeyPatch, device: str, n_chars: int) -> None:
    """All tables that depend on the corpus, with steps, warm-up and intervals, for short and for long sentences."""
    fake_device(monkeypatch, device)
    request = request_for(device)
    draft = request.recipe({"data": request.data, "model": pairs.transformer(pair_sizes(1))})
    tables = [pairs.sized(PairSurvey(n, n * n_chars), request, draft, None, False, False) for n in NS]
    found = [dict(numbers(table)) for table in tables]
    assert {".text.vocab_size", ".model.d_model", ".optim.lr", ".train.steps", ".schedule.warmup"} <= found[0].keys()
    for n, (before, after) in zip(NS[1:], pairwise(found)):
        assert_no_jump(before, after, n)


@pytest.mark.parametrize(
    "choose",
    [pair_sizes, text_sizes, label_sizes, lambda n: image_sizes(n, True), lambda n: image_sizes(n, False)],
    ids=["pairs", "text", "labels", "images-gpu", "images-cpu"],
)
def test_no_choice_jumps(choose: Any) -> None:
    found = [dict(numbers(choose(n))) for n in NS]
    for n, (before, after) in zip(NS[1:], pairwise(found)):
        assert_no_jump(before, after, n)


def test_epochs_do_not_jump() -> None:
    curves = [curve for curve in vars(sizes).values() if isinstance(curve, Curve)]
    curves += [*sizes.TUNE_LABELS.values(), *sizes.TUNE_IMAGES.values()]
    assert len(curves) > 25
    for curve in curves:
        assert all(abs(math.log(curve(b) / curve(a))) < 0.05 for a, b in pairwise(NS))


def test_steps_do_not_fall_where_subwords_begin() -> None:
    """Characters are tokens up to five million; a quarter as many subwords would be a quarter of the steps."""
    values = [sizes.tokens_of_text(n) for n in NS]
    assert values == sorted(values)
    assert sizes.tokens_of_text(5_000_001) == 5_000_000
    assert sizes.tokens_of_text(40_000_000) == 10_000_000 == sizes.tokens_of_text(40_000_000, False)


def test_more_data_gets_a_wider_model_with_less_dropout_and_fewer_epochs() -> None:
    chosen = [pair_sizes(n) for n in NS]
    for name in ("vocabulary", "width", "feed_forward", "tokens"):
        values = [getattr(size, name) for size in chosen]
        assert values == sorted(values)
        assert values[-1] > values[0]
    for name in ("dropout", "epochs"):
        values = [-getattr(size, name) for size in chosen]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1_000, (1000, 128, 256, 0.3, 1024, 200, 0.002)),
        (3_000, (4000, 128, 256, 0.3, 2048, 150, 0.00283)),
        (29_000, (8000, 128, 256, 0.3, 4096, 60, 0.004)),
        (167_000, (9984, 304, 1216, 0.2, 8192, 30, 0.00155)),
        (1_200_000, (19_968, 608, 2432, 0.1, 16_384, 15, 0.000773)),
    ],
)
def test_choices_for_pairs_at_the_anchors(n: int, expected: tuple[float, ...]) -> None:
    size = pair_sizes(n)
    assert (*size[:5], round(size.epochs, 9), pair_rate(size.tokens, size.width)) == expected


def test_choices_for_other_data_at_the_anchors() -> None:
    assert text_sizes(1_100_000) == pytest.approx((6, 8, 384, 256, 0.2, 16_384, 60, 1e-3))
    assert label_sizes(10_000) == pytest.approx((2, 4, 128, 0.3, 8000, 2048, 20, 1e-3))
    assert image_sizes(60_000, True)[:3] == ([2, 2, 2, 2], [64, 128, 256, 512], 256)
    assert image_sizes(10_000, False)[:3] == ([3, 3, 3], [16, 32, 64], 128)


def test_the_documented_choices_for_pairs_are_the_chosen_ones() -> None:
    page = (Path(__file__).parents[3] / "docs" / "zero-configuration.md").read_text(encoding="utf-8")
    table = page.partition("## Pairs")[2].partition("## Text")[0]
    rows = [
        [float(cell.replace(",", "")) for cell in line.split("|")[1:-1]]
        for line in table.splitlines()[6:]
        if "|" in line
    ]
    assert len(rows) > 8
    for n, *shown in rows:
        size = pair_sizes(int(n))
        assert shown[:5] == list(size[:5])
        assert (shown[5], shown[7]) == (pytest.approx(size.epochs, abs=0.5), pair_rate(size.tokens, size.width))


def test_a_curve_is_a_power_law_between_its_anchors() -> None:
    curve = Curve({10: 2.0, 1000: 200.0})  # f = n / 5
    assert [curve(n) for n in (1, 10, 35, 1000, 5000)] == pytest.approx([2, 2, 7, 200, 200])


def test_rounding_is_finer_than_a_tenth_and_keeps_powers_of_two() -> None:
    assert [even(value) for value in (128, 133, 250, 300, 700)] == [128, 136, 248, 304, 704]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task", TASK_NAMES)
def test_no_number_of_a_whole_recipe_jumps(monkeypatch: pytest.MonkeyPatch, task: str, device: str) -> None:
    """Everything is chosen as in a run, except that n is given instead of counted."""
    fake_device(monkeypatch, device)
    monkeypatch.setattr(SpeechCorpora, "read", lambda *_: [])
    for module in (pairs, text, labels, images, recordings):
        monkeypatch.setattr(module, "print_plan", lambda *_: None)
    before: dict[str, float] = {}
    for n in NS:
        survey = recordings.Survey(n, 2.0 * n, 9.0, 16_000, False)
        monkeypatch.setattr(pairs, "survey_pairs", lambda data, n=n: PairSurvey(n, n * 70))
        monkeypatch.setattr(text, "count_characters", lambda recipe, n=n: n)
        monkeypatch.setattr(labels, "survey_labels", lambda recipe, n=n: (n, n * 100))
        monkeypatch.setattr(images, "survey_images", lambda recipe, n=n: images.ImageSurvey(n, 10, 28, True))
        monkeypatch.setattr(recordings, "survey_recordings", lambda sources, survey=survey: survey)
        after = dict(numbers(TASKS.resolve(task).plan(request_for(device)).recipe.tables()))
        after.pop(".text.min_frequency", None)  # follows from the kind of tokenizer: 1 for characters, 2 for BPE
        if before:
            assert_no_jump(before, after, n)
        before = after
