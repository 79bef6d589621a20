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
from clearformer.recipe import build_model

B, T = 2, 5


def close(a: Tensor, b: Tensor) -> None:
    """Within 1e-4 of the largest in float32, 1e-9 in float64."""
    assert a.dtype == b.dtype
    bound = 1e-4 * max(1.0, b.abs().max().item()) if b.dtype == torch.float32 else 1e-9
    assert (a - b).abs().max().item() <= bound


def read(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a folder, in this precision, as every verb would open it."""
    config, weights = import_any(folder)
    model = build_model(config).to(dtype).eval()
    load_weights(model, weights, str(folder))
    return model


def streams(stack: Any, run: Callable[[], Tensor]) -> list[Tensor]:
    """What goes into each block, then what comes out at the end: transformers' `hidden_states`."""
    found: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for block in stack.blocks]
    found.append(run())
    for hook in hooks:
        hook.remove()
    return found


@pytest.fixture
def alike() -> Callable[[GPT, Any], None]:
    """Logits and every hidden state."""

    @torch.no_grad()
    def compare(ours: GPT, theirs: Any) -> None:
        tokens = torch.randint(ours.config.vocab, (B, T))
        said = theirs(input_ids=tokens, output_hidden_states=True)
        batch = TextBatch(tokens, tokens)
        found = [*streams(ours.decoder, lambda: ours.hidden(batch)), ours(batch)]
        wanted = [*said.hidden_states, said.logits]
        assert len(found) == len(wanted) == ours.config.n_layers + 2
        for a, b in zip(found, wanted):
            close(a, b)

    return compare


@pytest.fixture(name="read")
def reader() -> Callable[..., Any]:
    return read
