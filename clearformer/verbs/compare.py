"""Train several recipes on the same data with the same budget and seeds, and compare their metrics and costs.

    results = clearformer.compare("recipes/compare-translation.toml", "runs/compare")

    OUT/plan.json            the comparison, with all recipes in full
    OUT/NAME-SEED/           a run folder for each contender and seed
    OUT/results.json         OUT/figure.svg        OUT/page.html, which contains both

Each run has a separate process, so that it does not inherit the memory or the warm caches of another. When the call is
repeated, it resumes interrupted runs and skips finished ones.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from clearformer import plots
from clearformer.bundled.corpus import splits, write_corpus
from clearformer.checkpoint import RunFolder, read_report, write_json, write_text
from clearformer.comparison.page import page
from clearformer.comparison.settings import CompareConfig
from clearformer.data.parallel import read_test
from clearformer.errors import CheckpointError, ConfigError
from clearformer.evaluation.evaluate import evaluate
from clearformer.evaluation.lengths import bleu_by_length
from clearformer.handles.translator import Translator
from clearformer.loading.folder import task_of
from clearformer.metric import Metric
from clearformer.recipe import Recipe
from clearformer.tasks.translation import TranslationTask, plain_reference
from clearformer.training.journal import read_metrics
from clearformer.verbs.apart import train_apart
from clearformer.verbs.load import load_as
from clearformer.wording import count, listed

Results = dict[str, Any]
REPORT_KEYS = ("parameters", "steps", "seconds", "peak_mb")
"""The entries of a report that are compared, besides the number of tokens or examples in total and per second."""


def compare(
    settings: Path | str,
    out: Path | str | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
    at_once: int = 1,
) -> Results:
    """Train all contenders that are not trained yet, and return the contents of results.json.

    `out` is the folder for the runs, by default runs/NAME. `at_once` is the number of runs that train at the same time;
    they compete for the device and slow each other down. `say` is called with a line of text when a run starts.
    """
    path = Path(settings)
    config, folder = CompareConfig.read(path), Path(out or Path("runs") / path.stem)
    recipes = config.recipes(path.parent, folder / "corpus")
    metric = common_metric(recipes)
    write_plan(folder, config, recipes)
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
    runs: dict[str, list[Results]] = {name: [] for name in config.contenders}
    for ((name, seed), recipe), run in zip(recipes.items(), folders):
        runs[name].append({"seed": seed, **measure(run, recipe, metric, config.goal, device)})
    return write_results(folder, path, config, runs, metric, at_once)


def common_metric(recipes: Mapping[Any, Recipe]) -> Metric:
    """Return the metric that selects the best checkpoint. It must be the same for all recipes."""
    metrics = {(metric := task_of(recipe).deciding_metric(recipe)).name: metric for recipe in recipes.values()}
    if len(metrics) > 1:
        raise ConfigError(
            f"the recipes select their best checkpoints by different metrics: {listed(sorted(metrics))}",
            'set the same metric for all in the comparison file, with settings = ["train.metric=loss"]',
        )
    return next(iter(metrics.values()))


def write_plan(folder: Path, config: CompareConfig, recipes: Mapping[tuple[str, int], Recipe]) -> None:
    """Write the comparison to plan.json, and refuse a folder with the runs of another comparison."""
    plan = {
        "comparison": config.model_dump(mode="json"),
        "recipes": {f"{name}-{seed}": recipe.tables() for (name, seed), recipe in recipes.items()},
    }
    file = folder / "plan.json"
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        raise CheckpointError(
            f"{folder} contains the runs of another comparison", "choose another --out, or remove that folder"
        )
    write_json(file, plan)


def measure(run: RunFolder, recipe: Recipe, metric: Metric, goal: float | None, device: str) -> Results:
    """Return the metric, the costs and the validation curve of a run. `judged_on` is the split of the metric."""
    report = read_report(run)
    split = "test" if metric.name in report.get("test", {}) else "valid"
    valid = [row for row in read_metrics(run.metrics) if row["kind"] == "valid"]
    unit = task_of(recipe).unit
    pace = seconds_per_step(run, unit)
    return {
        "score": report[split][metric.name],
        "judged_on": split,
        "unit": unit,
        "count": report[unit],
        "per_second": report[f"{unit}_per_second"],
        **{key: report[key] for key in REPORT_KEYS},
        "reached": None if goal is None else reached(run, metric, goal, unit),
        "curve": {
            "step": [row["step"] for row in valid],
            "seconds": [round(row["step"] * pace, 2) for row in valid],
            "score": [row[metric.name] for row in valid],
        },
        "by_length": by_length(run, recipe, device) if task_of(recipe) is TranslationTask else None,
    }


def seconds_per_step(run: RunFolder, unit: str) -> float:
    """Return the seconds per step at the median speed of the run, without compilation and validation."""
    report = read_report(run)
    speed = median(row[f"{unit}_per_s"] for row in read_metrics(run.metrics) if row["kind"] == "train")
    return float(report[unit] / report["steps"] / speed)


def reached(run: RunFolder, metric: Metric, goal: float, unit: str) -> Results | None:
    """Return step and seconds of the first validation that reaches the goal; None if the run never reaches it."""
    for row in read_metrics(run.metrics):
        if row["kind"] == "valid" and (row[metric.name] == goal or metric.better(row[metric.name], goal)):
            return {"step": row["step"], "seconds": round(row["step"] * seconds_per_step(run, unit), 1)}
    return None


def by_length(run: RunFolder, recipe: Recipe, device: str) -> list[Results] | None:
    """Compute the BLEU of a translator by sentence length. Returns None without test data."""
    if not (pairs := read_test(run.data)):
        return None
    translator = load_as(Translator, run.path, device)
    references = [[plain_reference(pair.target, recipe) for pair in pairs]]
    scores = evaluate(translator, [pair.source for pair in pairs], references, recipe.evaluate)
    sources = [plain_reference(pair.source, recipe) for pair in pairs]  # words, even if the corpus has subwords
    return bleu_by_length(sources, scores["translations"], references, recipe.evaluate)


def write_results(
    folder: Path,
    settings: Path,
    config: CompareConfig,
    runs: Mapping[str, list[Results]],
    metric: Metric,
    at_once: int,
) -> Results:
    """Write results.json, the figure and the page."""
    results = {
        "title": title(runs, metric, config),
        "metric": metric.name,
        "unit": next(iter(runs.values()))[0]["unit"],
        "budget": config.budget.model_dump(exclude_none=True),
        "goal": config.goal,
        "side_by_side": at_once,
        "table": table(runs, metric),
        "runs": runs,
    }
    write_json(folder / "results.json", results)
    figure = plots.plot_comparison(results, folder / "figure.svg").read_text(encoding="utf-8")
    write_text(folder / "page.html", page(results, figure, settings.read_text(encoding="utf-8")))
    return {"page": str(folder / "page.html"), **results}


def table(runs: Mapping[str, list[Results]], metric: Metric) -> list[Results]:
    """Return one row per contender, best first, with means over the seeds.

    `reached_seconds` is None if any run missed the goal.
    """
    rows = []
    for name, seeds in runs.items():
        scores, goals = [run["score"] for run in seeds], [run["reached"] for run in seeds]
        rows.append(
            {
                "name": name,
                "score": mean(scores),
                "sd": stdev(scores) if len(scores) > 1 else None,
                **{key: mean(run[key] for run in seeds) for key in ("count", "per_second", *REPORT_KEYS)},
                "reached_seconds": mean(goal["seconds"] for goal in goals) if all(goals) else None,
            }
        )
    return sorted(rows, key=lambda row: row["score"], reverse=not metric.lower_is_better)


def title(runs: Mapping[str, list[Results]], metric: Metric, config: CompareConfig) -> str:
    """Summarise the comparison in one sentence: the budget, the best contender and the worst one."""
    first, *others = table(runs, metric)
    [(unit, amount)] = config.budget.model_dump(exclude_none=True).items()
    best = f"{first['name']} is best with {metric.name} {first['score']:.4g}"
    sentence = f"After {count(amount, unit.removesuffix('s'))} each, {best}"
    return f"{sentence}; {others[-1]['name']} has {others[-1]['score']:.4g}" if others else sentence
