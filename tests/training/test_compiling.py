"""Compiled training says what plain training says, for every kind of batch."""

import shutil
from typing import Any

import pytest
import torch

from clearformer import registry
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, TextBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.image_classification import ImageClassification, ImageClassificationConfig
from clearformer.training.compiling import How, compiled

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute:UserWarning"),
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]
SIZES = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11, "dropout": 0.0}


def case(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any, Any]:
    """In float64, unless asked otherwise: a compiler adds and multiplies in an order of its own."""
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
    elif name == "resnet":
        sizes = {"stem": "3x3", "stem_width": 5, "block": "basic", "depths": (1,), "widths": (7,), "size": 11}
        sizes |= {"channels": 3, "n_classes": 5}
        batch = ImageBatch(torch.randn(5, 3, 11, 11, dtype=dtype), torch.tensor([0, 2, 1, 1, 0]))
    else:
        sizes = {**SIZES, "source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 1, "n_decoder_layers": 1}
        batch = Batch(tokens, tokens > 3, tokens.flip(0), tokens)
    kind = registry.resolve("model", name)
    model = kind(kind.Config(**sizes)).to(dtype)
    objective = registry.resolve("objective", model.task)
    return model, objective(objective.Config()), batch


WHOLE = [(name, "whole") for name in ("transformer", "gpt", "bert", "rnn-lm", "resnet")]


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
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")  # as Dynamo makes one of Beta's
def test_augmentation_compiles_and_draws_from_the_seed() -> None:
    """All of it in one graph with the network; what is drawn differs from step to step, and not from run to run."""
    model, _, batch = case("resnet", torch.float32)
    augment = {"flip": True, "crop": 2, "erase": 0.5, "randaugment": 1, "mixup": 0.3}
    image = ImageConfig(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), augment=augment)
    objective = compiled(ImageClassification(ImageClassificationConfig(), image), model, "whole")
    pixels = ImageBatch(torch.randint(256, batch.pixels.shape, dtype=torch.uint8), batch.classes)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(objective(model, pixels)[0].item())
    assert losses[0] == losses[1] != losses[2]
