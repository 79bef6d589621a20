"""Train several recipes on the same data with the same budget and seeds, and compare their scores and costs.

    results = clearformer.compare("recipes/compare-translation.toml", "runs/compare")

    OUT/plan.json            what is compared, with every recipe in full
    OUT/NAME-SEED/           a run folder for each contender and seed
    OUT/results.json         OUT/picture.svg        OUT/page.html, which holds both

Each training is a process of its own, so that none inherits the memory or the warm caches of another. Given again, the
same command resumes a training that was interrupted, and leaves finished ones alone.
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
from clearformer.bundled.corpus import splits, write_corpus
from clearformer.checkpoint import RunFolder, write_json, write_text
from clearformer.comparison.page import page
from clearformer.comparison.settings import CompareConfig
from clearformer.data.parallel import read_test
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, Interrupted, MachineError
from clearformer.evaluation.evaluate import evaluate
from clearformer.evaluation.lengths import bleu_by_length
from clearformer.handles.translator import Translator
from clearformer.loading.folder import task_of
from clearformer.metric import Metric
from clearformer.recipe import Recipe
from clearformer.tasks.translation import TranslationTask, plain_reference
from clearformer.training.journal import read_metrics
from clearformer.verbs.load import load_as
from clearformer.verbs.train import train

Results = dict[str, Any]
KEPT = ("parameters", "steps", "seconds", "peak_mb")  # keys of a report, besides its count of units and their speed


def compare(
    settings: Path | str,
    out: Path | str | None = None,
    device: str = "auto",
    say: Callable[[str], None] = lambda text: None,
    at_once: int = 1,
) -> Results:
    """Train every contender that is not trained yet, and return the contents of results.json.

    Runs go to `out`, runs/NAME by default. `at_once` trainings share the device, and so their speed suffers.
    """
    path = Path(settings)
    config, folder = CompareConfig.read(path), Path(out or Path("runs") / path.stem)
    recipes = config.recipes(path.parent, folder / "corpus")
    metric = common_metric(recipes)
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
    runs: dict[str, list[Results]] = {name: [] for name in config.contenders}
    for ((name, seed), recipe), run in zip(recipes.items(), folders):
        runs[name].append({"seed": seed, **measure(run, recipe, metric, config.goal, device)})
    return write_results(folder, path, config, runs, metric, at_once)


def common_metric(recipes: Mapping[Any, Recipe]) -> Metric:
    """The metric that decides for all recipes which weights are best."""
    metrics = {(metric := task_of(recipe).deciding_metric(recipe)).name: metric for recipe in recipes.values()}
    if len(metrics) > 1:
        raise ConfigError(
            f"contenders are judged by different scores: {', '.join(sorted(metrics))}",
            'give them one, such as settings = ["train.metric=loss"]',
        )
    return next(iter(metrics.values()))


def keep_plan(folder: Path, config: CompareConfig, recipes: Mapping[tuple[str, int], Recipe]) -> None:
    """Write down what is compared, and refuse a folder with the runs of another comparison."""
    plan = {
        "comparison": config.model_dump(mode="json"),
        "recipes": {f"{name}-{seed}": recipe.tables() for (name, seed), recipe in recipes.items()},
    }
    file = folder / "plan.json"
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        raise CheckpointError(f"{folder} holds another comparison", "choose another --out, or remove that folder")
    write_json(file, plan)


def train_apart(recipe: Recipe, run: RunFolder, device: str) -> None:
    """Train, or resume, in a separate process. Its errors are raised here as they are."""
    given: dict[str, Any] = {"resume": True} if run.exists else {"recipe": recipe}
    new = get_context("spawn")  # a fork would inherit torch's threads in whatever state they are in
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
            "give the command again to resume; a negative code is a signal, such as -9 when memory runs out",
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


def measure(run: RunFolder, recipe: Recipe, metric: Metric, goal: float | None, device: str) -> Results:
    """The score of one training, its costs, and its validation curve."""
    report = json.loads(run.report.read_text(encoding="utf-8"))
    judged = "test" if metric.name in report.get("test", {}) else "valid"
    valid = [row for row in read_metrics(run.metrics) if row["kind"] == "valid"]
    unit = task_of(recipe).unit
    pace = seconds_per_step(run, unit)
    return {
        "score": report[judged][metric.name],
        "judged_on": judged,
        "unit": unit,
        "count": report[unit],
        "per_second": report[f"{unit}_per_second"],
        **{key: report[key] for key in KEPT},
        "reached": None if goal is None else reached(run, metric, goal, unit),
        "curve": {
            "step": [row["step"] for row in valid],
            "seconds": [round(row["step"] * pace, 2) for row in valid],
            "score": [row[metric.name] for row in valid],
        },
        "by_length": by_length(run, recipe, device) if task_of(recipe) is TranslationTask else None,
    }


def seconds_per_step(run: RunFolder, unit: str) -> float:
    """Seconds of training at its median speed, without compilation and validation."""
    report = json.loads(run.report.read_text(encoding="utf-8"))
    speed = median(row[f"{unit}_per_s"] for row in read_metrics(run.metrics) if row["kind"] == "train")
    return float(report[unit] / report["steps"] / speed)


def reached(run: RunFolder, metric: Metric, goal: float, unit: str) -> Results | None:
    """Step and seconds of training at the first validation that is as good as the goal; None if there is none."""
    for row in read_metrics(run.metrics):
        if row["kind"] == "valid" and (row[metric.name] == goal or metric.better(row[metric.name], goal)):
            return {"step": row["step"], "seconds": round(row["step"] * seconds_per_step(run, unit), 1)}
    return None


def by_length(run: RunFolder, recipe: Recipe, device: str) -> list[Results] | None:
    """BLEU of a translator by the length of the sentence, if it was tested."""
    if not (pairs := read_test(run.data)):
        return None
    translator = load_as(Translator, run.path, device)
    references = [[plain_reference(pair.target, recipe) for pair in pairs]]
    scores = evaluate(translator, [pair.source for pair in pairs], references, recipe.evaluate)
    sources = [plain_reference(pair.source, recipe) for pair in pairs]  # words, where the corpus has subwords
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
    figure = plots.plot_comparison(results, folder / "picture.svg").read_text(encoding="utf-8")
    write_text(folder / "page.html", page(results, figure, settings.read_text(encoding="utf-8")))
    return {"page": str(folder / "page.html"), **results}


def table(runs: Mapping[str, list[Results]], metric: Metric) -> list[Results]:
    """A row for each contender, best first: means over its seeds. No `reached_seconds` if a seed missed the goal."""
    rows = []
    for name, seeds in runs.items():
        scores, goals = [run["score"] for run in seeds], [run["reached"] for run in seeds]
        rows.append(
            {
                "name": name,
                "score": mean(scores),
                "sd": stdev(scores) if len(scores) > 1 else None,
                **{key: mean(run[key] for run in seeds) for key in ("count", "per_second", *KEPT)},
                "reached_seconds": mean(goal["seconds"] for goal in goals) if all(goals) else None,
            }
        )
    return sorted(rows, key=lambda row: row["score"], reverse=not metric.lower_is_better)


def title(runs: Mapping[str, list[Results]], metric: Metric, config: CompareConfig) -> str:
    first, *others = table(runs, metric)
    [(unit, amount)] = config.budget.model_dump(exclude_none=True).items()
    after = f"After {amount:,} {unit} each, {first['name']} is best with {metric.name} {first['score']:.4g}"
    return f"{after}; {others[-1]['name']} has {others[-1]['score']:.4g}" if others else after
