"""Histograms of weights, gradients and activations by layer, at every validation: histograms.jsonl in the run folder.

    {"step": 500, "weights": {"encoder.blocks.0": {"low": …, "high": …, "counts": [32]}}, "gradients": {…},
     "activations": {…}}

Weights are the weights of the step, not their average. Gradients are those of the step before clipping, by log10 |g|.
Activations are the outputs of each layer on the first micro-batch of the step, padding included; compiled layers, which
let nothing be seen, have none.
Nothing is drawn at random and nothing is changed, so that training is bit-identical with and without histograms.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from clearformer.checkpoint import whole
from clearformer.layers.histogram import as_json, histogram, magnitudes
from clearformer.layers.weight_names import place_of
from clearformer.training.config import TrainConfig
from clearformer.training.journal import cut_back, read_records


class Histograms:
    """Does nothing unless train.histograms is on. `is_due` says whether the present step is followed by a validation.

    If a run ends by max_tokens or max_seconds, its last validation has no histograms of gradients.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, path: Path, is_first: bool = True) -> None:
        self.config, self.path, self.is_first, self.is_due = config, path, is_first, False
        self.gradients: dict[str, Any] = {}
        self.activations: dict[str, Any] = {}
        self.model, self.hooks = model, list[RemovableHandle]()
        self.written = -1  # the last step in the file
        self.layers: dict[str, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters() if config.histograms else ():
            if parameter.requires_grad:
                self.layers.setdefault(place_of(name)[0], []).append(parameter)

    def begin(self, step: int) -> None:
        """Remove what is recorded after `step`, where the run continues."""
        if self.layers and any(record["step"] == step for record in read_records(self.path)):  # on every rank
            self.written = step
        if self.is_first and self.path.exists():
            cut_back(self.path, step)

    def set_step(self, step: int) -> None:
        self.is_due = bool(self.layers) and (step % self.config.validate_every == 0 or step == self.config.steps)
        self.gradients, self.activations = {}, {}
        self.unhook()
        if self.is_due and not is_compiled(self.model):
            self.hooks = [module.register_forward_hook(self.keeper(name)) for name, module in self.modules().items()]

    def modules(self) -> dict[str, nn.Module]:
        """Return the module of each layer; recurrent layers that compute together have one."""
        known, chosen = dict(self.model.named_modules()), dict[str, nn.Module]()
        for name in self.layers:
            path = name if name in known else name.rpartition(".")[0]
            if path:  # the weights of the model itself belong to no layer
                chosen[path] = known[path]
        return chosen

    def keeper(self, name: str) -> Callable[..., None]:
        @torch.no_grad()
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            output = output[0] if isinstance(output, tuple) else output
            if isinstance(output, Tensor) and output.is_floating_point() and name not in self.activations:
                self.activations[name] = histogram(output)

        return keep

    def unhook(self) -> None:
        while self.hooks:
            self.hooks.pop().remove()

    @torch.no_grad()
    def keep_gradients(self) -> None:
        """Record the gradients of this step, if it is due."""
        self.unhook()
        if self.is_due:
            self.gradients = {
                name: magnitudes(joined([p.grad for p in weights if p.grad is not None]))
                for name, weights in self.layers.items()
                if any(p.grad is not None for p in weights)
            }

    @torch.no_grad()
    def write(self, step: int) -> None:
        """Record this step, once: a validation that was left out when the run was stopped follows when it resumes."""
        if self.layers and self.written != step:
            self.written = step
            weights = {name: as_json(histogram(joined(parameters))) for name, parameters in self.layers.items()}
            kept = {"gradients": self.gradients, "activations": self.activations}
            parts = {part: {name: as_json(one) for name, one in layers.items()} for part, layers in kept.items()}
            if self.is_first:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "weights": weights, **parts}) + "\n")


def joined(tensors: list[Any]) -> Tensor:
    return torch.cat([whole(tensor.detach()).flatten().float() for tensor in tensors])


def is_compiled(model: nn.Module) -> bool:
    return any(getattr(module, "_compiled_call_impl", None) is not None for module in model.modules())
