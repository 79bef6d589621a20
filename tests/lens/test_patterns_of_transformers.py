"""Recorded patterns are the attentions of Hugging Face's models, whose weights pass through the real converter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.data.batch import Batch, EncoderBatch, TextBatch
from clearformer.lens.session import Lens

from ..interop.huggingface.conftest import read
from ..interop.huggingface.test_bert import theirs_of as bert
from ..interop.huggingface.test_gpt2 import gpt2
from ..interop.huggingface.test_marian import marian
from ..interop.huggingface.test_t5 import theirs_of as t5

B, T, S, V = 2, 5, 11, 17


def converted(theirs: Any, folder: Path) -> Any:
    theirs.set_attn_implementation("eager")  # fused kernels return no attentions
    theirs.save_pretrained(folder)
    return read(folder)


@torch.no_grad()
def assert_same_patterns(ours: Any, batch: Any, expected: dict[str, Sequence[Tensor]], rows: Tensor) -> None:
    """`expected` are their patterns (B, H, T, S) by the paths of our layers; `rows` is False at padded queries."""
    with Lens(ours, keep=["*.pattern"]) as look:
        ours(batch)
    names = [path.replace("*", str(i)) for path, layers in expected.items() for i in range(len(layers))]
    assert sorted(look) == sorted(f"{name}.pattern" for name in names)
    for path, layers in expected.items():
        for i, theirs in enumerate(layers):
            recorded = look[f"{path.replace('*', str(i))}.pattern"]
            assert recorded.shape == theirs.shape
            difference = (recorded - theirs).abs().amax((1, 3))  # (B, T)
            real = rows if path.startswith("encoder") else torch.ones_like(difference, dtype=torch.bool)
            assert difference[real].max() <= 1e-5
            assert theirs.std(-1)[real[:, None].expand(theirs.shape[:3])].max() > 0.01  # not uniform


@torch.no_grad()
def test_bert(tmp_path: Path) -> None:
    theirs = bert()
    ours = converted(theirs, tmp_path)
    mask = torch.arange(T) < torch.tensor([[T], [3]])
    tokens = torch.randint(3, V, (B, T)).masked_fill(~mask, 0)
    segments = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    out = theirs(tokens, attention_mask=mask.long(), token_type_ids=segments, output_attentions=True)
    assert_same_patterns(ours, EncoderBatch(tokens, mask, segments), {"encoder.blocks.*.attn": out.attentions}, mask)


@torch.no_grad()
def test_gpt2(tmp_path: Path) -> None:
    theirs = gpt2()
    ours = converted(theirs, tmp_path)
    tokens = torch.randint(V, (B, T))
    out = theirs(tokens, output_attentions=True)
    batch = TextBatch(tokens, tokens)
    assert_same_patterns(ours, batch, {"decoder.blocks.*.attn": out.attentions}, torch.ones(B, T).bool())


@pytest.mark.parametrize("build", [marian, t5])
@torch.no_grad()
def test_encoder_decoder_and_cross(tmp_path: Path, build: Any) -> None:
    """The biases of T5 are part of its patterns; S exceeds its widest bucket."""
    theirs = build()
    ours = converted(theirs, tmp_path)
    mask = torch.arange(S) < torch.tensor([[S], [7]])
    source, target = torch.randint(2, V - 1, (B, S)), torch.randint(2, V - 1, (B, T))
    source = source.masked_fill(~mask, theirs.config.pad_token_id)
    out = theirs(source, attention_mask=mask.long(), decoder_input_ids=target, output_attentions=True)
    expected = {
        "encoder.blocks.*.attn": out.encoder_attentions,
        "decoder.blocks.*.attn": out.decoder_attentions,
        "decoder.blocks.*.cross": out.cross_attentions,
    }
    assert_same_patterns(ours, Batch(source, mask, target, target), expected, mask)
