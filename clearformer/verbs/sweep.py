"""sweep: train with many settings, and keep the best.

    results = clearformer.sweep(pairs="pairs.tsv", over={"optim.lr": [0.001, 0.003], "model.dropout": [0.1, 0.3]})

    OUT/plan.json            the trials, with their settings; trial 000 is the default
    OUT/000/ …               a run folder for each trial
    OUT/best                 a link to the run folder of the best trial
    OUT/results.json         OUT/figure.svg

    grid       every combination of the values
    random     `runs` random combinations
    halving    successive halving (Jamieson & Talwalkar 2016): all trials train for a part of their steps, the best
               third of them three times as long, and so on. The default is never dropped

Trials are ranked by their best validation so far. When the call is repeated, it resumes interrupted runs and skips
finished ones. Data may be Python objects, which must then have the same content.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, cast

from clearformer import plots
from clearformer.checkpoint import RunFolder, read_report, write_json
from clearformer.comparison.space import Space, Trial, as_settings, shown
from clearformer.data.objects.staging import staged, titled
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, Paused, TrainingError, suggest
from clearformer.metric import Metric
from clearformer.recipe import Recipe
from clearformer.tasks import collect
from clearformer.tasks.given_objects import as_files
from clearformer.training.journal import read_metrics
from clearformer.verbs.apart import train_apart
from clearformer.verbs.choices import Settings, all_settings
from clearformer.verbs.compare import common_metric
from clearformer.verbs.train import Name, choose, default_folder, describe_batch, refuse_without_data
from clearformer.wording import count

Results = dict[str, Any]
Method = Literal["grid", "random", "halving"]
METHODS = ("grid", "random", "halving")
RUNS = 9  # by default, of random and halving
KEPT = 3  # one in three trials of a round stays


@dataclass
class Contest:
    """The trials of a sweep, their recipes, run folders and errors."""

    trials: list[Trial]
    recipes: list[Recipe]
    runs: list[RunFolder]
    metric: Metric
    errors: dict[int, str]

    def score(self, i: int) -> float | None:
        """The best validation of a trial so far; None before the first one."""
        values = [row[self.metric.name] for row in read_metrics(self.runs[i].metrics) if row["kind"] == "valid"]
        return (min if self.metric.lower_is_better else max)(values, default=None)

    def ranked(self, trials: Sequence[int]) -> list[int]:
        """The trials that have a score and no error, best first."""
        scores = {i: self.score(i) for i in trials if i not in self.errors}
        valid = {i: value for i, value in scores.items() if value is not None}
        return sorted(valid, key=lambda i: valid[i], reverse=not self.metric.lower_is_better)


@staged()
def sweep(
    recipe: Name | None = None,
    *,
    over: Mapping[str, Any] | Sequence[str],
    method: Method | None = None,
    runs: int | None = None,
    model: str | None = None,
    out: Name | None = None,
    settings: Settings = (),
    steps: int | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    precision: str | None = None,
    seed: int = 0,
    device: str = "auto",
    at_once: int | None = None,
    say: Callable[[str], None] = lambda text: None,
    **data: Any,
) -> Results:
    """Train once with each choice of settings, and return the contents of results.json.

    `over` has the values of each setting: {"optim.lr": [0.001, 0.003]}, or strings as for --over, which may also be
    ranges: "optim.lr=0.0001..0.01". The other arguments are the same as for `train`. `runs` is the number of trials of
    random search and successive halving, and `seed` decides which. `at_once` is the number of runs that train at the
    same time: by default one per GPU, or one on the CPU.
    """
    chosen = all_settings(settings, steps=steps, epochs=epochs, lr=lr, batch_size=batch_size, precision=precision)
    space = Space(over) if isinstance(over, Mapping) else Space.parse(over)
    method = method or ("random" if space.has_ranges else "grid")
    trials = choose_trials(space, method, runs, seed)
    given = collect(data)
    given = None if given is None else as_files(given)  # once: an iterator cannot be read for every trial

    def plan(trial: Trial) -> Recipe:
        try:
            planned = choose(recipe, model, [*chosen, *as_settings(trial)], device, given)
        except ConfigError as error:
            if not trial or not error.message.startswith("--set:"):
                raise
            raise ConfigError(error.message.replace("--set:", "--over:", 1), error.hint) from None
        refuse_without_data(planned)
        return cast(Recipe, planned.recipe)

    trials, recipes = distinct(trials, plan)
    describe_batch(recipes[0], batch_size)
    folder = Path(out) if out else default_folder(recipes[0]).with_name(f"sweep-{default_folder(recipes[0]).name}")
    write_plan(folder, method, trials, recipes)
    metric = common_metric(dict(enumerate(recipes)))
    errors = read_errors(folder)
    contest = Contest(trials, recipes, [RunFolder(folder / f"{i:03}") for i in range(len(trials))], metric, errors)
    devices = free_devices(device, at_once)
    rounds = [1.0] if method != "halving" else parts_of(len(trials))
    alive = list(range(len(trials)))
    for part in rounds:
        say(f"training {count(len(alive), 'run')}" + (f" for {part:.0%} of their steps" if part < 1 else ""))
        train_round(contest, alive, part, devices, folder, say)
        if part < 1:
            n = max(1, -(-len(alive) // KEPT))
            alive = sorted({*contest.ranked(alive)[:n], 0})
    return write_results(folder, contest, alive, method)


def choose_trials(space: Space, method: str, runs: int | None, seed: int) -> list[Trial]:
    if method not in METHODS:
        raise ConfigError(f"--method {method}: there is no such method", suggest(method, METHODS))
    if method == "grid":
        if runs is not None:
            raise ConfigError("--runs is for random search and halving; a grid has all combinations", "omit --runs")
        return space.grid()
    if runs is not None and runs < 2:
        raise ConfigError(f"--runs {runs}: a sweep needs at least two runs", "the first one is the default")
    return space.random(runs or RUNS, seed)


def distinct(trials: Sequence[Trial], plan: Callable[[Trial], Recipe]) -> tuple[list[Trial], list[Recipe]]:
    """Return the trials whose recipes differ from all before them, such as from the default, and their recipes."""
    recipes: dict[str, tuple[Trial, Recipe]] = {}
    for trial in trials:
        recipe = plan(trial)
        recipes.setdefault(recipe.dump(), (trial, recipe))
    if len(recipes) == 1:
        raise ConfigError(
            "all values of the sweep are the default, so there is nothing to compare",
            "give other values; `clearformer train --dry-run` prints the default",
        )
    kept = list(recipes.values())
    return [trial for trial, _ in kept], [recipe for _, recipe in kept]


def parts_of(n: int) -> list[float]:
    """The part of the steps that is trained in each round of n trials: 1/9, 1/3, 1 for nine trials."""
    parts = [1.0]
    while n >= KEPT:
        parts.insert(0, parts[0] / KEPT)
        n //= KEPT
    return parts


def train_round(
    contest: Contest,
    trials: Sequence[int],
    part: float,
    devices: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Train these trials up to a part of their steps, as many at the same time as there are devices."""
    free: SimpleQueue[str] = SimpleQueue()
    for device in devices:
        free.put(device)
    threads = max(1, (os.cpu_count() or 1) // len(devices)) if len(devices) > 1 else None

    def train_one(i: int) -> None:
        recipe, run = contest.recipes[i], contest.runs[i]
        until = pause_of(recipe, part)
        # With train.epochs, the number of steps is an estimate, and only the report says that a run is complete.
        end = until or (recipe.train.steps if recipe.train.epochs is None else math.inf)
        if i in contest.errors or run.report.exists() or steps_of(run) >= end:
            return
        device = free.get()
        say(f"{i:03}: {shown(contest.trials[i])}")
        try:
            paused = recipe.with_tables(train=recipe.train.changed(pause=until))
            train_apart(paused, run, device, [] if until is None else [f"train.pause={until}"], threads)
        except Paused:
            pass
        except TrainingError as error:  # it would fail again, so it is noted, and the others go on
            contest.errors[i] = titled(str(error).splitlines()[0])
            write_json(folder / "errors.json", contest.errors)
            say(f"{i:03} failed: {contest.errors[i]}")
        finally:
            free.put(device)

    with ThreadPoolExecutor(len(devices)) as pool:
        list(pool.map(train_one, trials))


def pause_of(recipe: Recipe, part: float) -> int | None:
    """The step at which a part of the steps is trained: a multiple of the steps between validations, or None: all."""
    period = recipe.train.validate_every
    step = -(-int(part * recipe.train.steps) // period) * period
    return step if 0 < step < recipe.train.steps and part < 1 else None


def steps_of(run: RunFolder) -> int:
    """The step of the last validation of a run, or 0."""
    rows = read_metrics(run.metrics) if run.metrics.exists() else []
    return max((int(row["step"]) for row in rows if row["kind"] == "valid"), default=0)


def free_devices(device: str, at_once: int | None) -> list[str]:
    """The device of each run that trains at the same time: one per GPU, or the given number on one device."""
    import torch

    n_gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    places = [f"cuda:{i}" for i in range(n_gpus)] if n_gpus > 1 else [device]
    return [places[i % len(places)] for i in range(at_once or len(places))]


def write_plan(folder: Path, method: str, trials: Sequence[Trial], recipes: Sequence[Recipe]) -> None:
    """Write the trials to plan.json, and refuse a folder with the runs of another sweep."""
    plan = {"method": method, "trials": list(trials), "recipes": list(map(lasting_tables, recipes))}
    file = folder / "plan.json"
    if file.exists() and json.loads(file.read_text(encoding="utf-8")) != json.loads(json.dumps(plan)):
        raise CheckpointError(
            f"{folder} contains the runs of another sweep", "choose another --out, or remove that folder"
        )
    write_json(file, plan)


def lasting_tables(recipe: Recipe) -> dict[str, Any]:
    """Return the tables of a recipe. Python objects are identified by their content: their files are temporary."""
    tables = recipe.tables()
    for split, source in tables["data"].items():
        if isinstance(source, dict) and "given" in source:
            path = recipe.data.source(split).path
            folder = (path[0] if isinstance(path, tuple) else path).parent  # contains nothing else
            tables["data"][split] = {**source, "path": fingerprint(folder)}
    return tables


@cache
def fingerprint(folder: Path) -> str:
    """Return 16 hexadecimal digits that depend on the names and contents of all files in a folder."""
    digest = sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)}\n".encode() + sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def read_errors(folder: Path) -> dict[int, str]:
    file = folder / "errors.json"
    return {int(i): text for i, text in json.loads(file.read_text(encoding="utf-8")).items()} if file.exists() else {}


def write_results(folder: Path, contest: Contest, alive: Sequence[int], method: str) -> Results:
    """Write results.json, the figure and the link to the best run."""
    order = contest.ranked(alive)
    if not order:
        raise ClearformerError(f"no run of the sweep succeeded: {contest.errors[0]}", f"see {folder / 'errors.json'}")
    rest = contest.ranked([i for i in range(len(contest.trials)) if i not in order])
    failed = sorted(contest.errors)
    table = [row(contest, i) for i in [*order, *rest, *failed]]
    best = table[0]
    results = {
        "title": f"{shown(best['settings'])} is best, with {contest.metric.name} {best['score']:.4g} on validation",
        "metric": contest.metric.name,
        "lower_is_better": contest.metric.lower_is_better,
        "method": method,
        "best": str(folder / "best"),
        "table": table,
    }
    write_json(folder / "results.json", results)
    plots.plot_sweep(results, folder / "figure.svg")
    link = folder / "best"
    link.unlink(missing_ok=True)
    link.symlink_to(contest.runs[order[0]].path.name)
    return results


def row(contest: Contest, i: int) -> Results:
    """The entry of a trial in the results. Only runs that were trained to the end have test metrics."""
    run, result = contest.runs[i], {"name": f"{i:03}", "settings": contest.trials[i]}
    if i in contest.errors:
        return {**result, "error": contest.errors[i]}
    report = read_report(run) if run.report.exists() else {}
    return {
        **result,
        "score": contest.score(i),
        "test": {name: value for name, value in report.get("test", {}).items() if isinstance(value, int | float)},
        "steps": steps_of(run),
        "is_complete": run.report.exists(),
        "seconds": report.get("seconds"),
    }
