"""Attribution: completeness within the error of the sum, gradients against finite differences, and causality."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.errors import ConfigError, DataError
from clearformer.lens.attribution import along_path, attribution, divide_path, embeddings_of
from clearformer.lens.outputs import by_row, choose_outputs
from clearformer.lens.reading import read
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.plots.attribution import attribution_figures

from .streams import (
    CLASSES,
    CLASSIFIERS,
    KINDS,
    LANGUAGE_MODELS,
    MODERATE,
    TEXT,
    TRANSLATORS,
    small_handle,
    small_tagger,
    tokenizer,
)


def parts(reading: Any) -> tuple[Any, Any]:
    embeddings = {f"{path}.out": module for path, module in embeddings_of(reading.model).items()}
    return embeddings, choose_outputs(reading, by_row(reading.look()[0]), None)


def error_bound(reading: Any, steps: int, finer: int = 32) -> torch.Tensor:
    """½ Σ h V, (R,): V is the total variation of df/dα inside each step, from points `finer` times as dense."""
    embeddings, outputs = parts(reading)
    knots = divide_path(reading, embeddings, outputs, steps)
    inside = torch.arange(finer + 1, dtype=torch.double) / finer
    alphas = knots[:-1, None] + knots.diff()[:, None] * inside  # (steps, finer + 1)
    _, slopes, (_, differences) = along_path(reading, embeddings, outputs, alphas.flatten())
    rate = sum(torch.einsum("nrtd,td->nr", slope, d) for slope, d in zip(slopes, differences))
    assert isinstance(rate, torch.Tensor)
    variation = rate.unflatten(0, (steps, finer + 1)).diff(dim=1).abs().sum(1)  # (steps, R)
    return (variation * knots.diff()[:, None]).sum(0) / 2


@pytest.mark.parametrize("steps", [23, 53])
@pytest.mark.parametrize("name", [name for name in KINDS if name not in TRANSLATORS or name in MODERATE])
def test_integrated_gradients_are_complete_up_to_the_error_of_their_steps(name: str, steps: int) -> None:
    """In float64, so that the bound of the sum is the only one."""
    reading = read(small_handle(name, torch.double), TEXT)
    values = attribution(reading, steps=steps)
    change = torch.tensor(values["logits"], dtype=torch.double) - torch.tensor(values["baseline"], dtype=torch.double)
    gap = change - torch.tensor(values["integrated"], dtype=torch.double).sum(1)
    bound = error_bound(reading, steps)
    assert (gap.abs() <= bound + 1e-12).all()
    assert bound.max() < change.abs().max()  # else anything would be complete
    torch.testing.assert_close(gap, torch.tensor(values["gap"], dtype=torch.double), atol=1e-12, rtol=0)


def test_the_bound_falls_with_the_number_of_steps() -> None:
    reading = read(small_handle("transformer", torch.double), TEXT)
    assert error_bound(reading, 46).max() < error_bound(reading, 23).max() / 1.5


@pytest.mark.parametrize("name", ["llama", "transformer-post", "t5", "classifier"])
def test_gradient_times_input_is_the_slope_of_longer_embeddings(name: str) -> None:
    """x · ∂f/∂x is the derivative of f when one embedding is scaled; checked by central differences in float64."""
    reading = read(small_handle(name, torch.double), TEXT)
    values, (embeddings, outputs) = attribution(reading, steps=2), parts(reading)
    names, eps = [*(reading.source or []), *reading.target], 1e-5
    assert len(values["inputs"]) == len(names)
    for token in range(len(names)):
        change = (at(reading, embeddings, token, 1 + eps) - at(reading, embeddings, token, 1 - eps)) / (2 * eps)
        for r, output in enumerate(outputs):
            assert values["gradient_input"][r][token] == pytest.approx(float(change[output.row, output.id]), abs=1e-7)


def at(reading: Any, embeddings: Any, token: int, factor: float) -> torch.Tensor:
    """The logits with one embedding multiplied by a factor. Tokens are counted over source and target."""
    before = 0

    def scale(x: torch.Tensor, name: str) -> torch.Tensor:
        nonlocal before
        x, index = x.clone(), token - before
        before += x.size(1)
        if 0 <= index < x.size(1):
            x[:, index] *= factor
        return x

    return by_row(reading.look(put=dict.fromkeys(embeddings, scale))[0])


@pytest.mark.parametrize("name", [*LANGUAGE_MODELS, *MODERATE])
def test_no_output_depends_on_later_tokens(name: str) -> None:
    reading = read(small_handle(name), TEXT)
    values = attribution(reading, steps=3)
    S = len(reading.source or [])
    for key in ("integrated", "gradient_input"):
        side = torch.tensor(values[key])[:, S:]
        assert side.triu(1).eq(0).all()
        assert not side.eq(0).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_has_one_row_per_class(name: str) -> None:
    handle: Any = small_handle(name)
    values = attribution(read(handle, TEXT), steps=3)
    assert values["outputs"] == handle.classes
    assert values["logits"] == pytest.approx(handle.logits(TEXT).tolist(), rel=1e-5)


def test_a_pair_of_texts_is_attributed_to_both() -> None:
    """A tab separates the texts; the logits are those of the classifier, and integrated gradients are complete."""
    handle: Any = small_handle("classifier", torch.double)
    handle.is_pair = True
    values = attribution(read(handle, "the dog sees\ta tree"), steps=512)
    ids, _ = handle.tokenizer.encode_with_specials(["the dog sees"], ["a tree"])
    assert values["inputs"] == handle.tokenizer.pieces(ids[0])
    assert values["logits"] == pytest.approx(handle.logits("the dog sees", "a tree").tolist(), rel=1e-5)
    for row, logit, baseline in zip(values["integrated"], values["logits"], values["baseline"]):
        assert sum(row) == pytest.approx(logit - baseline, rel=0.01, abs=0.01)
    with pytest.raises(DataError, match="is not a pair of texts"):
        read(handle, "the dog sees")
    handle.is_pair = None  # the files of the model do not tell
    assert attribution(read(handle, "the dog sees\ta tree"), steps=2)["inputs"] == values["inputs"]


def test_a_tagger_has_a_row_per_word_or_per_class_of_a_word() -> None:
    handle = small_tagger()
    text = "the dog  sees a tree"  # two spaces: words are split as the tagger splits them
    reading = read(handle, text)
    logits = handle.logits([text])
    every = attribution(reading, steps=3)
    best = [f"{word}: {CLASSES[k]}" for word, k in zip(text.split(), logits.argmax(-1).tolist())]
    assert every["outputs"] == best
    assert every["logits"] == pytest.approx(logits.amax(-1).tolist(), rel=1e-5)
    one = attribution(reading, position=2, steps=3)
    assert one["outputs"] == CLASSES
    assert one["logits"] == pytest.approx(logits[2].tolist(), rel=1e-5)
    with pytest.raises(ConfigError, match="there is no word 5"):
        attribution(reading, position=5)
    long = read(handle, "dog " * 40)  # of a text that does not fit, the first words
    assert long.words is not None
    assert len(long.words) == 9
    with pytest.raises(DataError, match="empty"):
        read(handle, " ")


def test_one_position() -> None:
    reading = read(small_handle("gpt", torch.double), TEXT)
    every, last = attribution(reading, steps=64), attribution(reading, position=-1, steps=64)
    assert len(last["outputs"]) == 1
    assert last["outputs"][0] != "?"  # the predicted token
    assert last["gradient_input"][0] == pytest.approx(every["gradient_input"][-1])
    with pytest.raises(ConfigError, match="there is no output 6"):
        attribution(reading, position=6)


def test_a_recurrent_language_model() -> None:
    from clearformer.handles.language_model import LanguageModel

    words = tokenizer()
    torch.manual_seed(0)
    model = RNN(RNNConfig(vocab=words.vocab_size, d_model=7, n_layers=2)).double()
    values = attribution(read(LanguageModel(model, words, opening=[words.bos_id]), TEXT), steps=64)
    assert max(map(abs, values["gap"])) < 1e-3 * max(map(abs, values["logits"]))


def test_the_bundled_translator(tmp_path: Path) -> None:
    """The weights of a loaded model are packed for the CPU; gradients go through them all the same."""
    reading = read(clearformer.load(), "I am a good boy.")
    values = attribution(reading)
    rows = dict(zip(values["outputs"], values["integrated"]))
    assert reading.source is not None
    for output, source in {"▁bon": "▁good", "▁garçon": "▁boy"}.items():
        by_source = dict(zip(reading.source, rows[output]))
        assert max(by_source, key=by_source.__getitem__) == source
    for logit, baseline, gap in zip(values["logits"], values["baseline"], values["gap"]):
        assert abs(gap) < 0.05 * abs(logit - baseline)
    assert json.loads(json.dumps(values)) == values
    for name, draw in attribution_figures(values).items():
        assert draw(tmp_path / f"{name}.svg").exists()
