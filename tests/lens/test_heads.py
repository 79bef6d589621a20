"""The importance of heads: by zero columns of the output matrix, on models with each kind of output."""

from typing import Any

import pytest
import torch
from torch import Tensor

import clearformer
from clearformer.data.batch import IGNORE
from clearformer.errors import ConfigError
from clearformer.lens.heads import averaged, heads, importance, without
from clearformer.lens.reading import Reading, read
from clearformer.lens.session import Lens

from ..models.test_contract import batch_for, build


def reading_of(name: str) -> Reading:
    model = build(name).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # large enough that every head matters
    batch: Any = batch_for(model).map(lambda tensor: tensor[:1])
    return Reading(name, model, batch, model, [], [], [] if name in ("transformer", "t5") else None, spell=str)


def labels_of(name: str, batch: Any, logits: Tensor) -> Tensor:
    """The labels as the docstring of heads.py defines them, once more."""
    if name in ("transformer", "t5"):
        return batch.labels
    if name == "gpt":
        return torch.cat([batch.tokens[:, 1:], torch.tensor([[IGNORE]])], 1)
    return logits.argmax(-1)


def log_p(name: str, reading: Reading, labels: Tensor) -> float:
    logits = reading.model(reading.batch)
    rows, ids = logits.flatten(0, -2), labels.flatten()
    return -float(torch.nn.functional.cross_entropy(rows.double(), ids, ignore_index=IGNORE, reduction="sum"))


@pytest.mark.parametrize("name", ["transformer", "gpt", "t5", "bert", "classifier", "vit"])
@torch.no_grad()
def test_importance_is_the_loss_with_zero_columns_of_the_output_matrix(name: str) -> None:
    reading = reading_of(name)
    labels = labels_of(name, reading.batch, reading.model(reading.batch))
    before, losses = importance(reading)
    assert abs(before - log_p(name, reading, labels)) < 1e-5
    assert len(losses) == sum(path.endswith(".out") and "blocks" in path for path, _ in reading.model.named_modules())
    assert min(loss.abs().max() for loss in losses.values()) > 1e-3
    for path, loss in losses.items():
        layer = reading.model.get_submodule(path)
        for head in range(layer.n_heads):
            columns = slice(head * layer.d_value, (head + 1) * layer.d_value)
            kept = layer.out.weight[:, columns].clone()
            layer.out.weight[:, columns] = 0
            assert abs(float(loss[head]) - (before - log_p(name, reading, labels))) < 1e-5
            layer.out.weight[:, columns] = kept


def test_a_translator_has_three_kinds_of_heads_and_a_file_their_mean() -> None:
    translator = clearformer.load()
    pairs = [("Where is the station?", "Où est la gare ?"), ("I am cold.", "J'ai froid.")]
    readings = [read(translator, *pair) for pair in pairs]
    values = heads(readings)
    assert [panel["name"] for panel in values["panels"]] == [
        "encoder.blocks.*.attn",
        "decoder.blocks.*.attn",
        "decoder.blocks.*.cross",
    ]
    singles = [heads([reading]) for reading in readings]
    assert values["examples"] == 2
    for i, panel in enumerate(values["panels"]):
        mean = sum(torch.tensor(single["panels"][i]["values"]) for single in singles) / 2
        torch.testing.assert_close(torch.tensor(panel["values"]), mean)
    torch.testing.assert_close(values["logprob"], sum(translator.score(*zip(*pairs))) / 2, atol=1e-3, rtol=0)


@torch.no_grad()
def test_several_heads_are_switched_off_together() -> None:
    reading = reading_of("gpt")
    chosen = [("decoder.blocks.0.attn", 1), ("decoder.blocks.1.attn", 0), ("decoder.blocks.0.attn", 4)]
    with Lens(reading.model, keep=["*.z"], put=without(chosen)) as look:
        reading.model(reading.batch)
    silent = [(name.removesuffix(".z"), head) for name in look for head in range(5) if look[name][:, head].eq(0).all()]
    assert silent == sorted(chosen)


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="birnn has no attention heads"):
        heads([reading_of("birnn")])
    gpt = reading_of("gpt")
    with pytest.raises(ConfigError, match="predicts no tokens or classes"):
        heads([Reading("encoder", gpt.model, gpt.batch, gpt.compute, [], [])])


def test_heads_are_replaced_by_their_means() -> None:
    z = torch.randn(2, 3, 5, 7)
    changes = averaged({"a": z, "b": z}, [("a", 2), ("a", 0)])
    assert list(changes) == ["a.z"]
    changed = changes["a.z"](z, "a.z")
    assert changed is not None
    torch.testing.assert_close(changed[:, [2, 0]], z.mean((0, 2))[[2, 0], None].expand(2, 2, 5, 7))
    torch.testing.assert_close(changed[:, 1], z[:, 1])
