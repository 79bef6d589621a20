"""Networks as ONNX graphs with free numbers of rows and tokens.

    texts         tokens, mask, segments   ->  logits (B, C) of a classifier, (B, T, C) of a tagger
    image         pixels                   ->  logits (B, C)
    encoder       source, mask             ->  memory (B, S, D)
    decoder       target, memory, mask     ->  logits of the next token (B, V)
    GPT           tokens                   ->  logits of the next token (B, V)

Attention is computed by the equation (PlainCore), which every runtime can fuse as it likes.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from clearformer.data.batch import EncoderBatch, ImageBatch, TextBatch
from clearformer.errors import MachineError
from clearformer.layers.attention import PlainCore
from clearformer.layers.backends import swapped

Shapes = Sequence[dict[int, Any]]
BATCH, LENGTH, SOURCE = (Dim(name, min=1) for name in ("batch", "length", "source"))


class OfTexts(nn.Module):
    def __init__(self, network: nn.Module, has_segments: bool) -> None:
        super().__init__()
        self.network, self.has_segments = network, has_segments

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        logits: Tensor = self.network(EncoderBatch(tokens, mask, segments, n_tokens=0))
        return logits


class OfImages(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.network(ImageBatch(pixels, n_tokens=0))
        return logits


class Encoder(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, mask: Tensor) -> Tensor:
        memory: Tensor = self.network.encode(source, mask)
        return memory


class Decoder(Encoder):
    def forward(self, target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        logits: Tensor = self.network.head(self.network.decode(target, memory, mask)[:, -1])
        return logits


class NextToken(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.network.hidden(TextBatch(tokens, tokens, n_tokens=0))
        logits: Tensor = self.network.head(hidden[:, -1])
        return logits


def text_graph(network: nn.Module, has_segments: bool) -> Any:
    tokens = torch.ones(2, 7, dtype=torch.long)
    inputs = {"tokens": tokens, "mask": tokens == 1, **({"segments": tokens * 0} if has_segments else {})}
    return graph(OfTexts(network, has_segments), inputs, [{0: BATCH, 1: LENGTH}] * len(inputs), "logits")


def image_graph(network: nn.Module, size: int, channels: int) -> Any:
    return graph(OfImages(network), {"pixels": torch.zeros(2, channels, size, size)}, [{0: BATCH}], "logits")


def encoder_graph(network: nn.Module) -> Any:
    source = torch.ones(2, 7, dtype=torch.long)
    shapes = [{0: BATCH, 1: SOURCE}] * 2
    return graph(Encoder(network), {"source": source, "mask": source == 1}, shapes, "memory")


def decoder_graph(network: nn.Module) -> Any:
    source = torch.ones(2, 7, dtype=torch.long)
    with torch.no_grad():
        memory = Encoder(network)(source, source == 1)
    inputs = {"target": source[:, :3], "memory": memory, "mask": source == 1}
    shapes = [{0: BATCH, 1: LENGTH}, {0: BATCH, 1: SOURCE}, {0: BATCH, 1: SOURCE}]
    return graph(Decoder(network), inputs, shapes, "logits")


def next_token_graph(network: nn.Module) -> Any:
    return graph(NextToken(network), {"tokens": torch.ones(2, 7, dtype=torch.long)}, [{0: BATCH, 1: LENGTH}], "logits")


def graph(module: nn.Module, inputs: dict[str, Tensor], shapes: Shapes, output: str) -> Any:
    """Return the ModelProto of a module whose inputs and output have these names."""
    module.eval()
    with swapped(module, lambda core: PlainCore()), torch.no_grad(), quietly():
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            input_names=list(inputs),
            output_names=[output],
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    if not all(value.type.tensor_type.shape.dim[0].dim_param for value in proto.graph.input):
        raise AssertionError("the exporter has fixed the number of rows")  # by a `len` of a tensor, for example
    return proto


@contextmanager
def quietly() -> Iterator[None]:
    """Hide the warnings of the exporter, which concern its authors; a missing package is an error of ours."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("onnx"):
            raise
        raise MachineError(
            f"the export to ONNX needs {error.name}, which is not installed", "pip install 'clearformer[onnx]'"
        ) from None
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
