"""What learns by each method, counted, and put together again."""

from typing import Any

import pytest
import torch

from clearformer.checkpoint import fingerprint, load_weights, weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError, ConfigError
from clearformer.models.classifier import Classifier, ClassifierConfig
from clearformer.training.average import Average
from clearformer.tuning.methods import TuningConfig, for_inference, tune

D, L, R, P, C = 12, 2, 3, 5, 7
BASE = {"kind": "bert", "vocab": 23, "n_layers": L, "d_model": D, "d_ff": 17, "n_heads": 3, "max_length": 13}
HEAD = {"classifier.weight", "classifier.bias"}
BATCH = EncoderBatch(torch.tensor([[3, 5, 7], [9, 4, 0]]), torch.tensor([[True] * 3, [True, True, False]]))
every_partial = pytest.mark.parametrize("method", ["lora", "prefix", "made", "head"])


def build(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Classifier(ClassifierConfig(base=BASE, n_classes=C)).double().eval()


def config(method: str) -> TuningConfig:
    """A prefix by way of an MLP is called made."""
    prefix = {"length": P} | ({"d_hidden": 11} if method == "made" else {})
    name = "prefix" if method == "made" else method
    return TuningConfig.parse({"method": name, "base": "runs/x", "lora": {"rank": R}, "prefix": prefix}, "[tuning]")


def test_numbers_that_learn_counted_by_hand() -> None:
    head = D * C + C
    expected = {
        "full": sum(p.numel() for p in build().parameters()),
        "head": head,
        "lora": head + L * 2 * (R * D + D * R),  # A and B, on queries and values
        "prefix": head + L * 2 * P * D,  # keys and values
    }
    for method, n in expected.items():
        model = build()
        names = tune(model, config(method))
        assert sum(p.numel() for p in model.parameters() if p.requires_grad) == n
        assert set(names) >= HEAD
        assert set(names) == {name for name, p in model.named_parameters() if p.requires_grad}


@every_partial
def test_what_learnt_goes_onto_the_same_base_and_says_the_same(method: str) -> None:
    model = build()
    own = tune(model, config(method))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in own:
                p.add_(torch.randn_like(p) * 0.3)
    part = {name: tensor.clone() for name, tensor in weights_of(model, own).items()}
    assert part.keys() == set(own)
    again = build()
    load_weights(again, part, "x", tune(again, config(method)))
    settled = for_inference(again, config(method))
    torch.testing.assert_close(settled(BATCH), model(BATCH))
    assert not build()(BATCH).allclose(model(BATCH))


def test_a_part_must_be_whole_and_nothing_more() -> None:
    model = build()
    own = tune(model, config("lora"))
    part = weights_of(model, own)
    lacking = {name: tensor for name, tensor in part.items() if name != "classifier.bias"}
    with pytest.raises(CheckpointError, match=r"`classifier\.bias` is missing"):
        load_weights(model, lacking, "x", own)
    with pytest.raises(CheckpointError, match=r"the model has no tensor `base\.embedding\.weight`"):
        load_weights(model, weights_of(model), "x", own)


def test_a_fingerprint_tells_every_bit() -> None:
    model, mark = build(), fingerprint(build())
    assert fingerprint(model) == mark
    assert fingerprint(build(1)) != mark
    with torch.no_grad():
        model.classifier.bias[2] = 1e-30
    assert fingerprint(model) != mark
    assert fingerprint(build().to(torch.bfloat16)) != mark


def test_an_average_is_of_what_learns() -> None:
    model = build()
    own = tune(model, config("head"))
    average = Average(model, 0.9)
    assert set(average.weights) == set(own)
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    with torch.no_grad():
        model.classifier.bias.add_(1)
    average.set_step(100)
    average.update()
    with average.swapped_in(model):
        torch.testing.assert_close(model.classifier.bias, before["classifier.bias"] + 0.1)
    assert model.classifier.bias.equal(before["classifier.bias"] + 1)


def test_a_part_needs_the_rest() -> None:
    with pytest.raises(ConfigError, match='method = "prefix" needs `base`'):
        TuningConfig.parse({"method": "prefix"}, "[tuning]")
    assert TuningConfig.parse({}, "[tuning]").method == "full"
