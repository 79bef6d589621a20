from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.checkpoint import load_weights
from clearformer.data.batch import TextBatch
from clearformer.interop.huggingface.convert import import_any
from clearformer.models.build import build_model
from clearformer.models.gpt import GPT

from ...bounds import assert_alike

B, T = 2, 5


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
        assert len(said.hidden_states) == ours.config.n_layers + 1
        assert_alike(
            ours,
            lambda model: [*streams(model.decoder, lambda: model.hidden(batch)), model(batch)],
            [*said.hidden_states, said.logits],
            n_terms=max(ours.config.d_model, ours.config.d_ff),
        )

    return compare


@pytest.fixture(name="read")
def reader() -> Callable[..., Any]:
    return read
