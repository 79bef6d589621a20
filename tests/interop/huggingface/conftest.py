from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.checkpoint import load_weights
from clearformer.data.batch import TextBatch
from clearformer.interop.huggingface.convert import import_any
from clearformer.models.gpt import GPT

B, T = 2, 5


def streams(model: GPT, tokens: Tensor) -> list[Tensor]:
    """What goes into each block, then what comes out of the last one and its norm: transformers' `hidden_states`."""
    found: list[Tensor] = []
    hooks = [
        block.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for block in model.decoder.blocks
    ]
    found.append(model.hidden(TextBatch(tokens, tokens)))
    for hook in hooks:
        hook.remove()
    return found


@pytest.fixture
def alike() -> Callable[[GPT, Any], None]:
    """Logits and every hidden state, within 1e-4 of the largest in float32 and 1e-9 in float64."""

    @torch.no_grad()
    def compare(ours: GPT, theirs: Any) -> None:
        tokens = torch.randint(ours.config.vocab, (B, T))
        said = theirs(input_ids=tokens, output_hidden_states=True)
        found = [*streams(ours, tokens), ours(TextBatch(tokens, tokens))]
        wanted = [*said.hidden_states, said.logits]
        assert len(found) == len(wanted) == ours.config.n_layers + 2
        for a, b in zip(found, wanted):
            assert a.dtype == b.dtype
            bound = 1e-4 * max(1.0, b.abs().max().item()) if b.dtype == torch.float32 else 1e-9
            assert (a - b).abs().max().item() <= bound

    return compare


@pytest.fixture
def read() -> Callable[[Path, torch.dtype], GPT]:
    """The model of a folder, built in this precision: rotary frequencies are computed while it is built."""

    def build(folder: Path, dtype: torch.dtype = torch.float32) -> GPT:
        config, weights = import_any(folder)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            model = GPT(config).eval()
        finally:
            torch.set_default_dtype(before)
        load_weights(model, weights, str(folder))
        return model

    return build
