from math import sqrt
from typing import Any

import pytest
import torch

from clearformer.data.batch import Batch
from clearformer.models.build import model_config
from clearformer.models.t5 import T5, T5Config
from clearformer.models.transformer import Transformer
from clearformer.verbs.inspect import inspect

B, S, T, V = 2, 7, 5, 23
SMALL: dict[str, Any] = {
    "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 11, "d_ff": 13,
    "n_heads": 3, "d_head": 5, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "n"), [("t5-small", 60_506_624), ("t5-base", 222_903_552), ("t5-11b", 11_307_321_344)]
)
def test_published_sizes(name: str, n: int) -> None:
    """Those of T5ForConditionalGeneration in `transformers`: the one table of words, counted once, and both stacks."""
    config, found = model_config(name), inspect(name, 3)
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"]) == n
    tables = {layer["name"]: layer["parameters"] for layer in found["layers"] if layer["name"].endswith("embedding")}
    assert sum(tables.values()) == 32128 * config.d_model
    with torch.device("meta"):
        own_head = T5(config.changed(share="embeddings"))
    assert sum(p.numel() for p in own_head.parameters()) == n + 32128 * config.d_model


def test_it_is_a_transformer_of_another_configuration() -> None:
    torch.manual_seed(0)
    t5 = T5(T5Config(**SMALL)).double().eval()
    fields = {**t5.config.model_dump(), "kind": "transformer"}
    twin = Transformer(Transformer.Config(**fields)).double().eval()
    twin.load_state_dict(t5.state_dict())
    batch = Batch(*(torch.randint(V, (B, n)) for n in (S, S, T, T)))
    batch = Batch(batch.source, batch.source_mask > 5, batch.target, batch.labels)
    assert twin(batch).equal(t5(batch))


def test_position_is_distance_alone_and_has_no_end() -> None:
    """Far beyond max_length, a text begun twice as late says the same: only distances are told."""
    torch.manual_seed(0)
    model = T5(T5Config(**SMALL | {"max_length": 3})).double().eval()
    source = torch.randint(V, (1, 150))
    early, late = (torch.arange(150) + start for start in (0, 1000))
    embedded = model.source_embedding(source)
    torch.testing.assert_close(model.encoder(embedded, early), model.encoder(embedded, late), atol=1e-12, rtol=0)


def test_no_layer_has_a_bias() -> None:
    assert not [name for name, _ in T5(T5Config(**SMALL)).named_parameters() if "bias" in name]


@pytest.mark.parametrize("share", ["all", "embeddings"])
def test_variance_is_one_from_the_first_layer_to_the_head(share: str) -> None:
    """Scores, features and logits begin with unit variance although nothing divides by √K."""
    torch.manual_seed(0)
    size = {"d_model": 256, "d_ff": 512, "n_heads": 8, "d_head": 64, "source_vocab": 499, "target_vocab": 499}
    model = T5(T5Config(**SMALL | size | {"share": share, "scale_head": share == "all"})).eval()
    x = torch.randn(1, 300, 256)
    attn: Any = model.decoder.blocks[1].cross  # type: ignore[union-attr]
    q, k, v = attn.split(attn.qkv(x))
    scores = q @ k.mT * attn.scale
    assert attn.scale == 1.0
    assert q.std().item() == pytest.approx(1 / sqrt(64), rel=0.05)
    up = model.encoder.blocks[0].mlp.up(x)  # type: ignore[union-attr, operator]
    for tensor in (model.source_embedding.weight, scores, v, up, model.head(x)):
        assert tensor.std().item() == pytest.approx(1.0, rel=0.1)
