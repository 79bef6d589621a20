from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError
from clearformer.interop.torch_nn import (
    export_attention,
    export_transformer,
    implied_config,
    import_attention,
    import_transformer,
)
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.masks import Causal, Padding
from clearformer.models.transformer import Transformer, TransformerConfig

from ..bounds import assert_alike

B, T, S, H, K, F, V = 2, 3, 5, 7, 11, 13, 17
D = H * K
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's advice to itself
PRECISIONS = [torch.float32, torch.float64]


def shaken(module: Any, dtype: torch.dtype, seed: int = 0) -> Any:
    """Every parameter random, biases and norms too: what starts as zero or one would hide a mistake."""
    torch.manual_seed(seed)
    module.to(dtype).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.1 if parameter.dim() == 1 else 0.0, std=0.3)
    return module


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_attention_is_torchs_both_ways(dtype: torch.dtype, bias: bool) -> None:
    theirs = shaken(nn.MultiheadAttention(D, H, bias=bias, batch_first=True), dtype)
    ours = import_attention(theirs)
    back = export_attention(ours)
    x, memory = torch.randn(B, T, D, dtype=dtype), torch.randn(B, S, D, dtype=dtype)
    keys = torch.tensor([[True] * S, [True] * 2 + [False] * 3])
    ahead = torch.ones(T, T, dtype=torch.bool).triu(1)

    def run(layer: MultiHeadAttention) -> list[Tensor]:
        queries, sources = (each.to(layer.out.weight.dtype) for each in (x, memory))
        across = layer(queries, sources, Padding(keys).dense(T, S, x.device))
        return [across, layer(queries, None, Causal().dense(T, T, x.device))]

    for other in (theirs, back):
        across = other(x, memory, memory, key_padding_mask=~keys, need_weights=False)[0]
        itself = other(x, x, x, attn_mask=ahead, need_weights=False)[0]
        assert_alike(ours, run, [across, itself], n_terms=D)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)


def test_attention_that_torch_has_not_is_refused() -> None:
    for module in (
        nn.MultiheadAttention(D, H, kdim=D + 1),
        nn.MultiheadAttention(D, H, add_bias_kv=True),
        nn.MultiheadAttention(D, H, add_zero_attn=True),
    ):
        with pytest.raises(CheckpointError, match="cannot be converted"):
            import_attention(module)
    for ours in (MultiHeadAttention(12, 6, n_kv_heads=2), MultiHeadAttention(12, 6, scale=1.0)):
        with pytest.raises(CheckpointError, match="cannot be converted"):
            export_attention(ours)


def batch_of_tokens() -> Batch:
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    source_mask = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    return Batch(source, source_mask, target, target)


def hidden_of(theirs: nn.Transformer, ours: Transformer, batch: Batch) -> Tensor:
    """What torch's stacks make of our embeddings, with positions already added."""

    def embedded(tokens: Tensor, side: str) -> Tensor:
        x = getattr(ours, f"{side}_embedding")(tokens)
        x = ours.encoder.positions.add(x, torch.arange(tokens.size(1)))
        return x if theirs.batch_first else x.transpose(0, 1)

    result: Tensor = theirs(
        embedded(batch.source, "source"),
        embedded(batch.target, "target"),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=~batch.source_mask,
        memory_key_padding_mask=~batch.source_mask,
    )
    return result if theirs.batch_first else result.transpose(0, 1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(
    ("norm_first", "activation", "bias", "batch_first"),
    list(product([True, False], ["relu", "gelu"], [True, False], [True, False])),
)
def test_transformer_is_torchs_both_ways(
    dtype: torch.dtype, norm_first: bool, activation: str, bias: bool, batch_first: bool
) -> None:
    theirs = nn.Transformer(
        D, H, 2, 1, F, activation=activation, norm_first=norm_first, bias=bias, batch_first=batch_first
    )
    shaken(theirs, dtype)
    ours = import_transformer(theirs, source_vocab=V, target_vocab=V, share="decoder", dropout=0.2)
    assert (ours.config.residual, ours.config.activation) == ("pre" if norm_first else "post", activation)
    assert (ours.config.n_encoder_layers, ours.config.n_decoder_layers, ours.config.bias) == (2, 1, bias)
    batch = batch_of_tokens()
    assert ours.hidden(batch).dtype == dtype
    back = export_transformer(ours)
    for other in (theirs, back):
        assert_alike(ours, lambda model: [model.hidden(batch)], [hidden_of(other, ours, batch)], n_terms=D)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("residual", ["pre", "post"])
@pytest.mark.parametrize("final_norm", [True, False, None])
def test_our_transformer_survives_the_journey(dtype: torch.dtype, residual: str, final_norm: bool | None) -> None:
    settings: dict[str, Any] = {"source_vocab": V, "target_vocab": V, "share": "none", "max_length": S}
    config = TransformerConfig(
        **settings, n_encoder_layers=1, n_decoder_layers=2, d_model=D, d_ff=F, n_heads=H, activation="silu",
        residual=residual, final_norm=final_norm, dropout=0.1, attention_dropout=0.2, activation_dropout=0.3,
    )  # fmt: skip
    ours = shaken(Transformer(config), dtype)
    theirs = export_transformer(ours)
    batch = batch_of_tokens()
    assert_alike(ours, lambda model: [model.hidden(batch)], [hidden_of(theirs, ours, batch)], n_terms=D)
    assert implied_config(theirs, **settings) == config.changed(final_norm=config.has_final_norm)
    back = import_transformer(theirs, **settings).state_dict()
    for name, tensor in ours.state_dict().items():
        if name.startswith(("encoder", "decoder")):
            assert torch.equal(back[name], tensor)


@pytest.mark.parametrize(
    "field", [{"activation": "swiglu"}, {"norm": "rms"}, {"n_kv_heads": 2}, {"positions": {"kind": "rotary"}}]
)
def test_what_torch_cannot_express_is_refused(field: dict[str, Any]) -> None:
    config = TransformerConfig(d_model=12, n_heads=6, n_encoder_layers=1, n_decoder_layers=1, **field)
    with pytest.raises(CheckpointError, match="cannot be converted"), torch.device("meta"):
        export_transformer(Transformer(config))


def test_what_we_cannot_express_is_refused() -> None:
    uneven = nn.Transformer(D, H, 1, 1, F, batch_first=True)
    uneven.decoder.layers[0].linear1 = nn.Linear(D, F + 1)
    with pytest.raises(CheckpointError, match="d_ff"):
        import_transformer(uneven)
    for theirs in (
        nn.Transformer(D, H, 1, 1, F, activation=torch.tanh, batch_first=True),
        nn.Transformer(D, H, 1, 1, F, layer_norm_eps=1e-3, batch_first=True),
        nn.Transformer(D, H, custom_encoder=nn.Identity(), custom_decoder=nn.Identity(), batch_first=True),
    ):
        with pytest.raises(CheckpointError, match="cannot be converted"):
            import_transformer(theirs)
