"""Compiled training says what plain training says, for every kind of batch."""

import shutil
from typing import Any

import pytest
import torch

from clearformer import registry
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, TextBatch
from clearformer.training.compiling import How, compiled

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute:UserWarning"),
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]
SIZES = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11, "dropout": 0.0}


def case(name: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    tokens = torch.randint(3, 23, (2, 7))
    if name == "gpt":
        sizes = {**SIZES, "vocab": 23, "n_layers": 2, "attention_dropout": 0.0}
        batch: Any = TextBatch(tokens, tokens.flip(1))
    elif name == "bert":
        sizes = {**SIZES, "vocab": 23, "n_layers": 1, "attention_dropout": 0.0}
        labels = tokens.where(tokens % 3 == 0, IGNORE)
        batch = EncoderBatch(tokens, tokens > 3, labels=labels, classes=torch.tensor([0, 1]))
    elif name == "rnn-lm":
        sizes = {"vocab": 23, "d_model": 10, "dropout": 0.0, "init": 0.3}
        batch = TextBatch(tokens, tokens.flip(1), goes_on=torch.zeros(2, dtype=torch.bool))
    elif name == "seq2seq":
        sizes = {"source_vocab": 23, "target_vocab": 23, "d_model": 7, "d_embedding": 10, "attention": "additive"}
        sizes["dropout"] = 0.0
        batch = Batch(tokens, torch.arange(7) < torch.tensor([[7], [3]]), tokens.flip(0), tokens)
    else:
        sizes = {**SIZES, "source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 1, "n_decoder_layers": 1}
        batch = Batch(tokens, tokens > 3, tokens.flip(0), tokens)
    kind = registry.resolve("model", name)
    model = kind(kind.Config(**sizes))
    objective = registry.resolve("objective", model.task)
    return model, objective(objective.Config()), batch


WHOLE = [(name, "whole") for name in ("transformer", "gpt", "bert", "rnn-lm")]


@pytest.mark.parametrize(("name", "how"), [*WHOLE, ("gpt", "blocks"), ("seq2seq", "blocks")])
def test_loss_count_and_gradients_are_the_same(name: str, how: How) -> None:
    results = []
    for chosen in ("off", how):
        model, objective, batch = case(name)
        total, count = compiled(objective, model, chosen)(model, batch)
        total.backward()
        results.append((total.detach(), count, [p.grad for p in model.parameters()]))
    (ours, n, grads), (theirs, m, others) = results
    assert n == m == batch.n_tokens
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(grads, others):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
