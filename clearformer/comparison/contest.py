"""Several recipes on the same data with the same budget, seed by seed: what each reaches, and at what cost.

    results = clearformer.compare("recipes/compare-translation.toml", "runs/compare")

    OUT/plan.json            what is compared, every recipe whole
    OUT/NAME-SEED/           an ordinary run folder for each contender and seed
    OUT/results.json         OUT/picture.svg        OUT/page.html, which holds both

Each training is a process of its own, so that none inherits the memory or the warm caches of another. The same command
given again goes on with a training that was cut off, and leaves alone those that are finished.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from clearformer import plots
from clearformer.bundled.corpus import splits
from clearformer.checkpoint import RunFolder, write_json, write_text
from clearformer.comparison.page import page
from clearformer.comparison.settings import CompareConfig
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, Interrupted, MachineError
from clearformer.evaluation.evaluate import evaluate
from clearformer.evaluation.lengths import bleu_by_length
from clearformer.handles.translator import Translator
from clearformer.launch import METRICS
from clearformer.loading.handles import load
from clearformer.prepare import test_pairs
from clearformer.recipe import Recipe, task_of
from clearformer.registry import resolve
from clearformer.showcase import write_corpus
from clearformer.tasks.translation import plain_reference
from clearformer.training.journal import read_metrics
from clearformer.verbs.training import train

LOWER = [metric.name for metric in METRICS.values() if metric.lower_is_better]
KEPT = ("parameters", "steps", "seconds", "peak_mb")  # of a report, besides its tokens, or examples, and their speed


def compare(
    settings: Path | str,
    out: Path | str | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
    at_once: int = 1,
) -> dict[str, Any]:
    """Train whoever is not trained yet, into runs/NAME unless told otherwise; returns what results.json holds.

    `at_once` trainings share the device. Speeds and seconds are then those of sharing it.
    """
    path = Path(settings)
    config, folder = CompareConfig.read(path), Path(out or Path("runs") / path.stem)
    recipes = config.recipes(path.parent, folder / "corpus")
    metric = judged_by(recipes)
    keep_plan(folder, config, recipes)
    if config.bundled is not None:
        write_corpus(splits(train=config.bundled), folder / "corpus")

    def trained(contender: tuple[str, int]) -> RunFolder:
        name, seed = contender
        say(f"{name}, seed {seed}")
        run = RunFolder(folder / f"{name}-{seed}")
        if not run.report.exists():
            train_apart(recipes[contender], run, device)
        return run

    with ThreadPoolExecutor(at_once) as pool:
        folders = list(pool.map(trained, recipes))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in config.contenders}
    for ((name, seed), recipe), run in zip(recipes.items(), folders):
        runs[name].append({"seed": seed, **measure(run, recipe, metric, config.goal, device)})
    results = {
        "title": title(runs, metric, config),
        "metric": metric,
        "unit": next(iter(runs.values()))[0]["unit"],
        "budget": config.budget.model_dump(exclude_none=True),
        "goal": config.goal,
        "side_by_side": at_once,
        "table": table(runs, metric),
        "runs": runs,
    }
    write_json(folder / "results.json", results)
    picture = plots.plot_comparison(results, folder / "picture.svg")
    write_text(
        folder / "page.html", page(results, picture.read_text(encoding="utf-8"), path.read_text(encoding="utf-8"))
    )
    return {"page": str(folder / "page.html"), **results}


def judged_by(recipes: Mapping[Any, Recipe]) -> str:
    """The score that all recipes are validated by."""
    found = {
        recipe.train.metric or resolve("task", task_of("objective", recipe.objective.kind)).metrics[0]
        for recipe in recipes.values()
    }
    if len(found) > 1:
        raise ConfigError(
            f"contenders are judged by different scores: {', '.join(sorted(found))}",
            'give them one, such as settings = ["train.metric=loss"]',
        )
    return str(found.pop())


def keep_plan(folder: Path, config: CompareConfig, recipes: Mapping[tuple[str, int], Recipe]) -> None:
    """Say what is compared, and refuse to mix it with another comparison's runs."""
    plan = {
        "comparison": config.model_dump(mode="json"),
        "recipes": {f"{name}-{seed}": recipe.tables() for (name, seed), recipe in recipes.items()},
    }
    file = folder / "plan.json"
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        raise CheckpointError(f"{folder} holds another comparison", "choose another --out, or remove that folder")
    write_json(file, plan)


def train_apart(recipe: Recipe, run: RunFolder, device: str) -> None:
    """Train, or go on, in a process of its own, which ends with the training; its errors come back as they are."""
    given: dict[str, Any] = {"resume": True} if run.exists else {"recipe": recipe}
    new = get_context("spawn")  # a fork would inherit torch's threads in whatever state they are
    incoming, outgoing = new.Pipe(duplex=False)
    process = new.Process(target=train_here, args=(outgoing, {"out": run.path, "device": device, **given}))
    process.start()
    outgoing.close()
    try:
        error = incoming.recv()
    except EOFError:
        process.join()  # or it would have no exit code yet
        raise MachineError(
            f"the training of {run.path} ended with exit code {process.exitcode}",
            "give the command again to go on; a code below 0 is that of a signal, as when memory runs out",
        ) from None
    finally:
        process.join()  # at Ctrl-C, which both receive, it saves first
    if error is not None:
        raise error


def train_here(outgoing: Connection, given: dict[str, Any]) -> None:
    try:
        train(**given)
        outgoing.send(None)
    except (ClearformerError, Interrupted) as error:
        outgoing.send(error)


def measure(run: RunFolder, recipe: Recipe, metric: str, goal: float | None, device: str) -> dict[str, Any]:
    """What one training reached, and how it came there."""
    report = json.loads(run.report.read_text(encoding="utf-8"))
    judged = "test" if metric in report.get("test", {}) else "valid"
    valid = [row for row in read_metrics(run.metrics) if row["kind"] == "valid"]
    pace, unit = seconds_a_step(run), unit_of(report)
    return {
        "score": report[judged][metric],
        "judged_on": judged,
        "unit": unit,
        "count": report[unit],
        "per_second": report[f"{unit}_per_second"],
        **{key: report[key] for key in KEPT},
        "reached": None if goal is None else reached(run, metric, goal),
        "curve": {
            "step": [row["step"] for row in valid],
            "seconds": [round(row["step"] * pace, 2) for row in valid],
            "score": [row[metric] for row in valid],
        },
        "by_length": by_length(run, recipe, device),
    }


def seconds_a_step(run: RunFolder) -> float:
    """Of training alone, at its median speed, without compilation and validation."""
    report = json.loads(run.report.read_text(encoding="utf-8"))
    unit = unit_of(report)
    speed = median(row[f"{unit}_per_s"] for row in read_metrics(run.metrics) if row["kind"] == "train")
    return float(report[unit] / report["steps"] / speed)


def unit_of(report: Mapping[str, Any]) -> str:
    """What a training counts: tokens that are predicted, or examples or images that are judged."""
    return next(unit for unit in ("tokens", "examples", "images") if unit in report)


def reached(run: RunFolder, metric: str, goal: float) -> dict[str, Any] | None:
    """The first validation that is as good as the goal, if there is one: its step, and the seconds of training."""
    sign = -1 if metric in LOWER else 1
    for row in read_metrics(run.metrics):
        if row["kind"] == "valid" and sign * row[metric] >= sign * goal:
            return {"step": row["step"], "seconds": round(row["step"] * seconds_a_step(run), 1)}
    return None


def by_length(run: RunFolder, recipe: Recipe, device: str) -> list[dict[str, Any]] | None:
    """For a translator that was tested: BLEU against the length of the sentence."""
    pairs = test_pairs(run)
    if not pairs or not isinstance(translator := load(run.path, device), Translator):
        return None
    references = [[plain_reference(pair.target, recipe) for pair in pairs]]
    scores = evaluate(translator, [pair.source for pair in pairs], references, recipe.evaluate)
    sources = [plain_reference(pair.source, recipe) for pair in pairs]  # words, where the corpus has pieces
    return bleu_by_length(sources, scores["translations"], references, recipe.evaluate)


def table(runs: Mapping[str, list[dict[str, Any]]], metric: str) -> list[dict[str, Any]]:
    """A row for each contender, its seeds averaged, the best first. `reached_seconds` is none if one seed never did."""
    rows = []
    for name, own in runs.items():
        scores, goals = [run["score"] for run in own], [run["reached"] for run in own]
        rows.append(
            {
                "name": name,
                "score": mean(scores),
                "sd": stdev(scores) if len(scores) > 1 else None,
                **{key: mean(run[key] for run in own) for key in ("count", "per_second", *KEPT)},
                "reached_seconds": mean(goal["seconds"] for goal in goals) if all(goals) else None,
            }
        )
    return sorted(rows, key=lambda row: row["score"], reverse=metric not in LOWER)


def title(runs: Mapping[str, list[dict[str, Any]]], metric: str, config: CompareConfig) -> str:
    first, *others = table(runs, metric)
    [(unit, amount)] = config.budget.model_dump(exclude_none=True).items()
    after = f"After {amount:,} {unit} each, {first['name']} is best with {metric} {first['score']:.4g}"
    return f"{after}; {others[-1]['name']} has {others[-1]['score']:.4g}" if others else after
