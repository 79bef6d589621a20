"""Activation patching: where in the network is the difference between two texts? (Meng et al. 2022, Wang et al. 2023)

    Δ               = logit(b) − logit(a)      a is predicted for the text, b for the other text, at the same position
    restored_lt     = (Δ_lt − Δ_text) / (Δ_other − Δ_text)

Δ_lt is measured in a run on the text, with the residual stream after layer l at position t taken from the other text.
restored is 0 if nothing changes, and 1 if Δ is as for the other text.

Texts may differ in length: positions correspond from the start as far as the tokens are equal, and from the end for the
rest (`partners`). A position without a partner keeps its own activation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import Batch
from clearformer.errors import ConfigError, DataError
from clearformer.lens.patches import replace
from clearformer.lens.points import points
from clearformer.lens.reading import Reading


@dataclass(frozen=True)
class Contrast:
    """The position of the logits at which two runs are compared, and the ids that they predict there."""

    position: int | None
    text: int
    other: int

    def of(self, logits: Tensor) -> float:
        """Δ: how much the model prefers what it predicts for the other text."""
        row = logits[0] if self.position is None else logits[0, self.position]
        return float(row[self.other].double() - row[self.text].double())


def patching(reading: Reading, other: Reading) -> dict[str, Any]:
    """Return restored_lt of each stack: layers × positions. The first row is the input of the first layer."""
    stacks = stacks_of(reading)
    logits, _ = reading.look()
    goal, states = other.look(keep=[name for names in stacks.values() for name in names])
    goal = aligned(goal, logits, partners(reading.target, other.target)) if goal.dim() > 2 else goal
    contrast = contrast_of(reading, logits, goal)
    start, end = contrast.of(logits), contrast.of(goal)

    def restored(name: str, position: int, partner: int | None) -> float:
        if partner is None:
            return 0.0
        state = states[name][..., [partner], :].expand(*[-1] * (states[name].dim() - 2), position + 1, -1)
        patched, _ = reading.look(put={name: replace(state, at=[position])})
        return (contrast.of(patched) - start) / (end - start)

    spell = reading.spell or (lambda ids: [str(i) for i in ids])
    a, b = (repr(*spell([index])) for index in (contrast.text, contrast.other))
    panels = []
    for stack, names in stacks.items():
        columns, others = ((r.source if stack == "encoder" and r.source else r.target) for r in (reading, other))
        pairs = list(enumerate(partners(columns, others)))
        panels.append(
            {
                "name": stack,
                "rows": ["input", *(str(layer) for layer in range(len(names) - 1))],
                "columns": [
                    columns[t] if at is None or columns[t] == others[at] else f"{columns[t]}←{others[at]}"
                    for t, at in pairs
                ],
                "values": [[restored(name, t, at) for t, at in pairs] for name in names],
                "down": "layer",
            }
        )
    return {
        "title": f"Activation patching in {reading.name}: from {a} to {b}",
        "label": "restored part of the logit difference",
        "text": {"prediction": a, "logit_difference": start},
        "other": {"prediction": b, "logit_difference": end},
        "position": contrast.position,
        "panels": panels,
    }


def stacks_of(reading: Reading) -> dict[str, list[str]]:
    """Return the names of the residual stream in each stack: before the first block and after every block."""
    stacks: dict[str, list[str]] = {}
    for name in points(reading.model):
        if name.endswith((".blocks.0.resid_pre", ".resid_post")):
            stacks.setdefault(name.split(".blocks.")[0], []).append(name)
    if not stacks:
        raise ConfigError(f"{reading.name} has no residual stream", "choose a Transformer")
    return stacks


def partners(mine: Sequence[str], theirs: Sequence[str]) -> list[int | None]:
    """Return for every token of a text its position in the other text, or None.

    partners(["a", "red", "cart"], ["a", "dark", "red", "cart"]) is [0, 2, 3]; the other way round it is
    [0, None, 1, 2].
    """
    n, m = len(mine), len(theirs)
    same = next((i for i, (x, y) in enumerate(zip(mine, theirs)) if x != y), min(n, m))
    return [i if i < same or n == m else (i + m - n if i + m - n >= same else None) for i in range(n)]


def aligned(goal: Tensor, logits: Tensor, where: Sequence[int | None]) -> Tensor:
    """Return the logits of the other text at the positions of the text; where there are none, those of the text."""
    rows = [logits[:, t] if at is None else goal[:, at] for t, at in enumerate(where)]
    return torch.stack(rows[: logits.size(1)], dim=1)


def contrast_of(reading: Reading, logits: Tensor, goal: Tensor) -> Contrast:
    """Compare two runs where their predictions differ.

    That is the first such position of a translation, which both read up to there, else the last such position.
    """
    if reading.spell is None:
        raise ConfigError(f"{reading.name} predicts no tokens or classes", "choose a model with probabilities")
    first, second = logits.argmax(-1)[0], goal.argmax(-1)[0]  # (T,), or a class
    differs = (first != second).nonzero()[:, 0] if first.dim() else torch.tensor([0] if first != second else [])
    if not len(differs):
        raise DataError("the model predicts the same for both texts", "give texts that it continues differently")
    if not first.dim():
        return Contrast(None, int(first), int(second))
    at = int(differs[0 if isinstance(reading.batch, Batch) else -1])
    return Contrast(at, int(first[at]), int(second[at]))
