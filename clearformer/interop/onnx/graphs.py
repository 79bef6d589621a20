"""One module as an ONNX graph, whose inputs and outputs have names, with free numbers of rows and tokens.

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

from clearformer.errors import MachineError
from clearformer.layers.attention import PlainCore
from clearformer.layers.backends import swapped

Shapes = Sequence[dict[int, Any]]
BATCH, LENGTH, SOURCE = (Dim(name, min=1) for name in ("batch", "length", "source"))


def graph(module: nn.Module, inputs: dict[str, Tensor], shapes: Shapes, outputs: Sequence[str]) -> Any:
    """Return the ModelProto of a module. `shapes` has the free dimensions of each input."""
    module.eval()
    with swapped(module, lambda core: PlainCore()), torch.no_grad(), quietly():
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            input_names=list(inputs),
            output_names=list(outputs),
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    for value, free in zip(proto.graph.input, shapes, strict=True):
        if not all(value.type.tensor_type.shape.dim[i].dim_param for i in free):
            # by a `len` of a tensor, for example
            raise AssertionError(f"the exporter has fixed a size of {value.name}")
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
