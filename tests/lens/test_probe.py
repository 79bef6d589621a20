"""Linear probes: against scikit-learn, on planted features, and on every kind of model that reads texts."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from clearformer.data.text_sample import TextSample
from clearformer.errors import ClearformerError, ConfigError, DataError
from clearformer.lens.probe import activations, fit_and_test, fit_logistic, held_out, probe
from clearformer.verbs.lens import view

from .small_handles import small

KINDS = (
    "transformer",
    "t5",
    "seq2seq",
    "gpt",
    "rnn-lm",
    "bert",
    "textcnn",
    "birnn-of-classifier",
    "bert-of-classifier",
)
WORDS = ["king", "queen", "man", "woman", "bike", "city", "old", "one", "here", "bike", "was"]
SAMPLE = TextSample(
    [f"the {WORDS[i % 11]} {'saw' if i % 2 else 'gave'} a {WORDS[i % 7]}" for i in range(53)],
    ["odd" if i % 2 else "even" for i in range(53)],
)


def test_the_fit_is_the_one_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(61, 5, generator=generator, dtype=torch.float64)
    labels = (x @ torch.randn(5, 3, generator=generator, dtype=torch.float64)).argmax(1)
    labels[:7] = 0  # not separable
    W, b = fit_logistic(x, labels, 3)
    peer = sklearn.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(x.numpy(), labels.numpy())

    def loss(W: torch.Tensor, b: torch.Tensor) -> float:
        return float(cross_entropy(x @ W.T + b, labels) + W.square().sum() / 122)

    assert loss(W, b) <= loss(*(torch.from_numpy(part) for part in (peer.coef_, peer.intercept_))) + 1e-8
    torch.testing.assert_close(W, torch.from_numpy(peer.coef_), atol=1e-3, rtol=0)


def test_every_class_is_held_out_in_part() -> None:
    labels = torch.tensor([0] * 23 + [1] * 2 + [2] * 5)
    chosen = held_out(labels, torch.Generator().manual_seed(0))
    assert [int(chosen[labels == k].sum()) for k in range(3)] == [4, 1, 1]


def test_a_probe_finds_a_feature_and_nothing_in_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (997,), generator=generator)
    noise = torch.randn(997, 7, generator=generator, dtype=torch.float64)
    is_test = held_out(labels, generator)
    assert 0.35 < fit_and_test(noise, labels, is_test, 2) < 0.65  # 199 texts: 3 standard errors are 0.11
    noise[:, 3] += 8 * labels
    assert fit_and_test(noise, labels, is_test, 2) > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_every_kind_of_model(kind: str) -> None:
    """The word that decides is there in the embeddings, so that their mean has it; the control has not."""
    values = probe(small(kind), SAMPLE)
    json.dumps(values)
    names = [layer["name"] for layer in values["layers"]]
    expected = {
        "transformer": ["embedding", "encoder.blocks.0", "encoder.blocks.1", "output"],
        "t5": ["embedding", "encoder.blocks.0", "encoder.blocks.1", "output"],
        "seq2seq": ["embedding", "encoder.l0"],
        "gpt": ["embedding", *(f"decoder.blocks.{i}" for i in range(3)), "output"],
        "rnn-lm": ["embedding", "layers.l0", "layers.l1", "output"],
        "bert": ["embedding", *(f"encoder.blocks.{i}" for i in range(3)), "output"],
        "textcnn": ["embedding", "output"],
        "birnn-of-classifier": ["embedding", "layers.l0", "layers.l1", "output"],
        "bert-of-classifier": ["embedding", *(f"encoder.blocks.{i}" for i in range(3)), "output"],
    }
    assert names == expected[kind]
    first = values["layers"][0]
    assert first["accuracy"] == 1
    assert first["control"] < first["accuracy"]
    assert values["n_train"] + values["n_test"] == 53
    assert values["majority"] == pytest.approx(5 / 10)


def test_activations_do_not_depend_on_the_rest_of_the_batch() -> None:
    model = small("bert")
    texts = ["the king", "a queen saw the old city", "one"]
    together = activations(model, texts)
    for i, text in enumerate(texts):
        for name, alone in activations(model, [text]).items():
            torch.testing.assert_close(together[name][i], alone[0], atol=1e-6, rtol=0)


def test_classes_of_one_text_are_left_out() -> None:
    values = probe(small("gpt"), TextSample([*SAMPLE.texts, "the king"], [*SAMPLE.labels, "rare"]))
    assert (values["classes"], values["left_out"]) == (["even", "odd"], 1)


def test_a_file_of_labelled_texts(tmp_path: Path) -> None:
    file = tmp_path / "labelled.tsv"
    file.write_text("\n".join(f"{text}\t{label}" for text, label in zip(*SAMPLE)), encoding="utf-8")
    values = view("probe", small("bert"), texts=file, out=tmp_path / "probe.svg")
    assert values == probe(small("bert"), SAMPLE)
    assert (tmp_path / "probe.svg").stat().st_size > 5000


def test_mistakes_are_explained(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match="needs at least 2 classes with 2 texts each, not 0"):
        view("probe", small("gpt"), texts=plain)
    with pytest.raises(ConfigError, match="needs --texts"):
        view("probe", small("gpt"))
    with pytest.raises(ConfigError, match="does not take TEXT"):
        view("probe", small("gpt"), "a text", texts=plain)
    with pytest.raises(ClearformerError, match="speech recogniser, which reads no texts"):
        probe(small("speech-rnn"), SAMPLE)
