import pytest
import torch
from torch import nn

from clearformer.errors import ConfigError
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.tuning.freeze import freeze, full, head_only, matches, short_names


def build(share: str = "none") -> Transformer:
    return Transformer(
        TransformerConfig(
            source_vocab=23, target_vocab=23, n_encoder_layers=2, n_decoder_layers=1, d_model=10, d_ff=13, n_heads=5,
            share=share, head_bias=True,
        )
    )  # fmt: skip


def learning(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def test_the_end_of_a_name_in_whole_words() -> None:
    assert matches("encoder.blocks.0.attn.q", "attn.q")
    assert matches("encoder.blocks.0.attn.q", "q")
    assert matches("encoder.blocks.0.attn.q", "encoder.*.q")
    assert matches("unembedding", "unembedding")
    assert not matches("encoder.blocks.0.attn.q", "ttn.q")
    assert not matches("encoder.blocks.0.attn.qkv", "attn.q")
    assert short_names(["a.0.b.c", "a.1.b.c", "a.1", "a.2.d", "e"]) == {"b.c", "d", "e"}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (["encoder.blocks.1.mlp.up"], ["encoder.blocks.1.mlp.up.weight", "encoder.blocks.1.mlp.up.bias"]),
        (["decoder.norm", "unembedding.bias"], ["decoder.norm.weight", "decoder.norm.bias", "unembedding.bias"]),
        ("decoder.*.cross.out", ["decoder.blocks.0.cross.out.weight", "decoder.blocks.0.cross.out.bias"]),
        (lambda name: name.startswith("source"), ["source_embedding.weight"]),
    ],
)
def test_only_what_is_named_learns(chosen: object, expected: list[str]) -> None:
    model = build()
    assert freeze(model, chosen) == learning(model) == expected  # type: ignore[arg-type]


def test_full_lets_everything_learn_again() -> None:
    model = build()
    every = learning(model)
    freeze(model, ["decoder.norm"])
    assert full(model) == learning(model) == every


def test_head_only() -> None:
    assert head_only(build()) == ["unembedding.weight", "unembedding.bias"]
    assert head_only(build(share="decoder")) == ["target_embedding.weight", "unembedding.bias"]  # one tied table
    with pytest.raises(ConfigError, match="its layers: 0 and 1"):
        head_only(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5)))


def test_a_name_that_means_nothing_is_refused_before_anything_changes() -> None:
    model = build()
    with pytest.raises(ConfigError, match=r"`mlp.upp`\nhint: did you mean `mlp.up`"):
        freeze(model, ["decoder.norm", "mlp.upp"])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_frozen_parameters_receive_no_gradient() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 5))
    freeze(model, ["1.bias"])
    model(torch.ones(7, 2)).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is not None] == ["1.bias"]
