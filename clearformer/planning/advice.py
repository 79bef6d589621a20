"""What would make a training fit: changes of the recipe that need less memory, each rehearsed like the recipe itself.

accumulation    half the micro-batch, twice as many: the same batches in each step      a little slower
recompute       train.recompute = "blocks": activations are computed twice              up to a third slower
shard           train.parallel = "shard" on several devices                             more communication
precision       --precision bfloat16 on the CPU                                         half of the activations
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from clearformer.planning.batches import Batches
from clearformer.planning.estimate import Estimate, Target, estimate
from clearformer.planning.rehearsal import Step
from clearformer.tables import Tables


class Advice(NamedTuple):
    """Options to add to the command, and the estimate with them."""

    options: str
    estimate: Estimate


def advise(recipe: Tables, batches: Batches, target: Target) -> list[Advice]:
    """Return changes after which the training fits, the cheapest first; if none suffices, what is needed least."""
    few, tried = batches.fewest(), list[Advice]()
    for changes in candidates(recipe, target):
        tried.append(Advice(shown(changes), estimate(changed(recipe, changes), divided(few, changes), target)))
        fitting = [advice for advice in tried if advice.estimate.fits]
        if len(fitting) == 3:
            break
    return fitting or [min(tried, key=lambda advice: advice.estimate.peak)]


def candidates(recipe: Tables, target: Target) -> Iterator[dict[str, Any]]:
    train = recipe.train
    recomputed = {"recompute": "blocks"} if train.recompute == "none" else {}
    sharded = {"parallel": "shard"} if target.n_devices > 1 and train.parallel != "shard" else {}
    halved = {"tokens": max(1, train.tokens // 2), "accumulation": 2 * train.accumulation}
    eighth = {"tokens": max(1, train.tokens // 8), "accumulation": 8 * train.accumulation}
    single: list[dict[str, Any]] = [halved, recomputed, sharded, eighth]
    if not target.device.is_gpu and train.precision in ("auto", "float32"):
        single.append({"precision": "bfloat16"})
    yield from (changes for changes in single if changes)
    yield {**eighth, **recomputed, **sharded}


def changed(recipe: Tables, changes: dict[str, Any]) -> Tables:
    return recipe.with_tables(train=recipe.train.changed(**changes))


def shown(changes: dict[str, Any]) -> str:
    return " ".join(f"--set train.{key}={value}" for key, value in changes.items())


def divided(batches: Batches, changes: dict[str, Any]) -> Batches:
    """The batches with the rows of each micro-batch divided among as many as the changes ask for."""
    if "accumulation" not in changes:
        return batches
    n = changes["accumulation"] // max(1, len(batches.largest[0][0]))
    largest, typical = ([split_step(step, n) for step in steps] for steps in (batches.largest, batches.typical))
    return Batches(batches.recipe, batches.task, largest, typical, batches.note)


def split_step(step: Step, n: int) -> Step:
    return [part for batch in step[0] for part in batch.split(n)], step[1]
