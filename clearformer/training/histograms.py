"""Histograms of weights and gradients by layer, at every validation: histograms.jsonl in the run folder.

    {"step": 500, "weights": {"encoder.blocks.0": {"low": …, "high": …, "counts": [32]}}, "gradients": {…}}

Weights are the weights of the step, not their average. Gradients are those of the step before clipping, by log10 |g|.
Nothing is drawn at random and nothing is changed, so that training is bit-identical with and without histograms.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.checkpoint import whole
from clearformer.layers.histogram import as_json, histogram, magnitudes
from clearformer.layers.weight_names import place_of
from clearformer.training.config import TrainConfig
from clearformer.training.journal import cut_back, read_metrics


class Histograms:
    """Does nothing unless train.histograms is on. `is_due` says whether the present step is followed by a validation.

    If a run ends by max_tokens or max_seconds, its last validation has no histograms of gradients.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, path: Path, is_first: bool = True) -> None:
        self.config, self.path, self.is_first, self.is_due = config, path, is_first, False
        self.gradients: dict[str, Any] = {}
        self.written = -1  # the last step in the file
        self.layers: dict[str, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters() if config.histograms else ():
            if parameter.requires_grad:
                self.layers.setdefault(place_of(name)[0], []).append(parameter)

    def begin(self, step: int) -> None:
        """Remove what is recorded after `step`, where the run continues."""
        if self.layers and any(record["step"] == step for record in read_metrics(self.path)):  # on every rank
            self.written = step
        if self.is_first and self.path.exists():
            cut_back(self.path, step)

    def set_step(self, step: int) -> None:
        self.is_due = bool(self.layers) and (step % self.config.validate_every == 0 or step == self.config.steps)
        self.gradients = {}

    @torch.no_grad()
    def keep_gradients(self) -> None:
        """Record the gradients of this step, if it is due."""
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
            gradients = {name: as_json(one) for name, one in self.gradients.items()}
            if self.is_first:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": step, "weights": weights, "gradients": gradients}) + "\n")


def joined(tensors: list[Any]) -> Tensor:
    return torch.cat([whole(tensor.detach()).flatten().float() for tensor in tensors])
