"""Convert torch's attention and Transformer modules to ours and back.

    MultiHeadAttention    <->    torch.nn.MultiheadAttention
    Transformer           <->    torch.nn.Transformer

torch stacks queries, keys and values in one matrix as we do, so conversion only renames tensors. An nn.Transformer has
neither embeddings nor a head: exporting drops them, and importing initialises new ones. If only the new module
has a bias, the bias is set to zero.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.errors import CheckpointError
from clearformer.interop.names import Rows, Table, block_rows, inside, rows_of, to_ours, to_theirs
from clearformer.layers.attention import MultiHeadAttention
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.wording import count

Module = TypeVar("Module", bound=nn.Module)

ATTENTION: Table = {"qkv.": "in_proj_", "out.": "out_proj."}
ENCODER: Table = {
    **inside("attn.", "self_attn.", ATTENTION),
    "add_attn.norm.": "norm1.",
    "mlp.up.": "linear1.",
    "mlp.down.": "linear2.",
    "add_mlp.norm.": "norm2.",
}
DECODER: Table = {
    **ENCODER,
    **inside("cross.", "multihead_attn.", ATTENTION),
    "add_cross.norm.": "norm2.",
    "add_mlp.norm.": "norm3.",
}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def import_attention(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Convert torch's attention to an equivalent layer of ours, which takes (B, T, D) regardless of `batch_first`."""
    if theirs.in_proj_weight is None:
        raise unsupported("an nn.MultiheadAttention with keys or values of a different width (kdim, vdim)")
    if theirs.bias_k is not None or theirs.add_zero_attn:
        raise unsupported("an nn.MultiheadAttention with extra keys (add_bias_kv, add_zero_attn)")
    bias = theirs.in_proj_bias is not None
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, bias=bias, dropout=theirs.dropout)
    rows = common(rows_of(ATTENTION), ours, theirs)
    return filled(ours, to_ours(theirs.state_dict(), rows, "the nn.MultiheadAttention"), like=theirs)


def export_attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Convert our attention to an equivalent nn.MultiheadAttention with `batch_first=True`."""
    width = ours.qkv.in_features
    if not (ours.n_kv_heads == ours.n_heads and ours.d_head == ours.d_value == width / ours.n_heads):
        raise unsupported("attention with fewer key heads than query heads, or heads not of width d_model / n_heads,")
    if ours.scale != 1 / sqrt(ours.d_head):
        raise unsupported(f"attention with scores scaled by {ours.scale:g} instead of 1/√K")
    theirs = nn.MultiheadAttention(width, ours.n_heads, ours.dropout, ours.qkv.bias is not None, batch_first=True)
    rows = common(rows_of(ATTENTION), ours, theirs)
    return filled(theirs, to_theirs(ours.state_dict(), rows, "the attention"), like=ours)


def import_transformer(theirs: nn.Transformer, **settings: Any) -> Transformer:
    """Build our Transformer with the encoder and decoder of an nn.Transformer.

    `settings` are the fields of TransformerConfig that an nn.Transformer does not have: vocabularies, positions, share.
    """
    ours = Transformer(implied_config(theirs, **settings))
    rows = common(tensor_rows(ours.config), ours, theirs)
    return filled(ours, to_ours(theirs.state_dict(), rows, "the nn.Transformer"), like=theirs)


def export_transformer(ours: Transformer) -> nn.Transformer:
    """Export our encoder and decoder, batch first. Inputs are embeddings plus positions; outputs are hidden vectors."""
    c = ours.config
    if c.activation not in ACTIVATIONS or c.norm != "layer" or (c.n_kv_heads or c.n_heads) != c.n_heads:
        raise unsupported(
            f"a model with activation {c.activation}, {c.norm} norm and {count(c.n_kv_heads or c.n_heads, 'key head')}"
        )
    if c.residual == "none":
        raise unsupported("a model without residual connections")
    if c.d_head is not None or c.d_value is not None or c.attention_scale is not None:
        raise unsupported("a model that sets d_head, d_value or attention_scale")
    if c.positions.kind in ("rotary", "alibi", "t5"):
        raise unsupported(f"a model with {c.positions.kind} positions, which are part of its attention,")
    layer: dict[str, Any] = {"d_model": c.d_model, "nhead": c.n_heads, "dim_feedforward": c.d_ff, "dropout": c.dropout}
    layer |= {"activation": ACTIVATIONS[c.activation], "norm_first": c.residual == "pre", "batch_first": True}
    norms = [nn.LayerNorm(c.d_model) if c.has_final_norm else None for _ in range(2)]
    # Nested tensors, a fast path for padding, support only some of these layers and warn about the others.
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**layer), c.n_encoder_layers, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), c.n_decoder_layers, norms[1])
    theirs = nn.Transformer(c.d_model, c.n_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for module in theirs.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = c.attention_dropout
        elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout.p = c.activation_dropout
    rows = common(tensor_rows(c), ours, theirs)
    weights = {name: tensor for name, tensor in ours.state_dict().items() if name in rows}
    return filled(theirs, to_theirs(weights, rows, "the model"), like=ours)


def implied_config(theirs: nn.Transformer, **settings: Any) -> TransformerConfig:
    """Infer our configuration from the layers of an nn.Transformer, which must all have the same settings."""
    if not isinstance(theirs.encoder, nn.TransformerEncoder) or not isinstance(theirs.decoder, nn.TransformerDecoder):
        raise unsupported("an nn.Transformer with a custom encoder or decoder")
    first, *others = [implied_fields(layer) for layer in (*theirs.encoder.layers, *theirs.decoder.layers)]
    for fields in others:
        for key, value in fields.items():
            if value != first[key]:
                raise unsupported(f"an nn.Transformer whose layers differ in {key} ({first[key]} and {value})")
    norms = theirs.encoder.norm is not None, theirs.decoder.norm is not None
    if any(isinstance(m, nn.LayerNorm) and m.eps != 1e-5 for m in theirs.modules()) or norms[0] != norms[1]:
        raise unsupported("an nn.Transformer with a norm epsilon other than 1e-5, or a final norm in only one stack,")
    depths = {"n_encoder_layers": len(theirs.encoder.layers), "n_decoder_layers": len(theirs.decoder.layers)}
    return TransformerConfig.parse({**first, **depths, "final_norm": norms[0], **settings}, "nn.Transformer")


def implied_fields(layer: Any) -> dict[str, Any]:
    names = [name for name, function in ACTIVATIONS.items() if function is layer.activation]
    if not names:
        raise unsupported(f"an nn.Transformer with activation {layer.activation}")
    return {
        "d_model": layer.self_attn.embed_dim,
        "d_ff": layer.linear1.out_features,
        "n_heads": layer.self_attn.num_heads,
        "activation": names[0],
        "residual": "pre" if layer.norm_first else "post",
        "bias": layer.linear1.bias is not None,
        "dropout": layer.dropout1.p,
        "attention_dropout": layer.self_attn.dropout,
        "activation_dropout": layer.dropout.p,
    }


def tensor_rows(config: TransformerConfig) -> Rows:
    return {
        **block_rows("encoder.blocks.", "encoder.layers.", config.n_encoder_layers, ENCODER),
        **block_rows("decoder.blocks.", "decoder.layers.", config.n_decoder_layers, DECODER),
        **rows_of({"encoder.norm.": "encoder.norm.", "decoder.norm.": "decoder.norm."}),
    }


def common(rows: Rows, ours: nn.Module, theirs: nn.Module) -> Rows:
    """Keep the table rows whose tensors exist in both modules; biases and final norms of only one are dropped."""
    left, right = ours.state_dict(), theirs.state_dict()
    return {name: names for name, names in rows.items() if name in left and all(other in right for other in names)}


def filled(module: Module, weights: dict[str, Tensor], like: nn.Module) -> Module:
    """Copy `weights` into `module` and zero its other biases. Use the dtype, device and training mode of `like`."""
    module.to(next(like.parameters())).train(like.training)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
            elif name.endswith("bias"):
                parameter.zero_()
    return module


def unsupported(what: str) -> CheckpointError:
    return CheckpointError(f"{what} cannot be converted", "the other library has no equivalent module")
