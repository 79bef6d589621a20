"""plan: memory, time and cost of a training before it starts, on this machine or on a device that is not here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.planning.advice import Advice, advise
from clearformer.planning.batches import sample_batches
from clearformer.planning.calibration import settled_mb
from clearformer.planning.estimate import Estimate, find_target
from clearformer.planning.estimate import estimate as estimate_training
from clearformer.recipe import Recipe
from clearformer.training.distributed import World
from clearformer.verbs.train import plan as choose_recipe


class Costs(NamedTuple):
    """The estimate of a training, what would make it fit if it does not, and a note about the data."""

    estimate: Estimate
    advice: list[Advice]
    note: str

    def as_json(self) -> dict[str, Any]:
        advice = [
            {
                "options": options,
                "peak_mb": round(e.peak / 1e6, 1),
                "fits": e.fits,
                "seconds_per_step": e.seconds_per_step,
            }
            for options, e in self.advice
        ]
        return {**self.estimate.as_json(), "advice": advice, "note": self.note}


def costs(recipe: str | Path | Recipe | None = None, *, device: str = "auto", gpus: int = 1, **choices: Any) -> Costs:
    """Estimate memory and time of a training. The data is read, and nothing is written.

    `device` is auto, cpu or cuda for this machine, or a name of planning/devices.toml, such as h100; `gpus` is their
    number. The other arguments are those of `train`.
    """
    target = find_target(device, gpus)
    here = device if device in ("cpu", "cuda", "mps") else "cpu" if target.device.is_gpu else "auto"
    before = settled_mb()
    chosen = recipe if isinstance(recipe, Recipe) else choose_recipe(recipe, device=here, **choices)
    with sample_batches(chosen, target.torch_device, World(size=gpus)) as batches:
        target = target.beside(max(0.0, settled_mb() - before))  # what reading data leaves behind, as in a training
        result = estimate_training(batches.recipe, batches, target)
        advice = [] if result.fits else advise(batches.recipe, batches, target)
        return Costs(result, advice, batches.note)


def estimate(
    recipe: str | Path | Recipe | None = None,
    *,
    device: str = "auto",
    gpus: int = 1,
    settings: Sequence[str] = (),
    **choices: Any,
) -> dict[str, Any]:
    """Return parameters, memory by part, seconds per step and hours of a training, before it starts.

    The arguments are those of `train`; in addition, `device` may name a device that is not here, such as "h100", and
    `gpus` is the number of devices. The result is the object that `clearformer plan --json` prints.
    """
    return costs(recipe, device=device, gpus=gpus, settings=settings, **choices).as_json()
