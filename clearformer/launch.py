"""A training from first to last: prepare the data, build the model, train, test, report."""

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearformer.checkpoint import RunFolder, load_weights, versions, write_json, write_text
from clearformer.data.collate import TokenBatches
from clearformer.data.sources import Example
from clearformer.errors import CheckpointError, ConfigError, Interrupted, MachineError, suggest
from clearformer.evaluation.evaluate import evaluate
from clearformer.generation.translate import Translator
from clearformer.loading import build_model, load
from clearformer.memory import keep_freed_memory
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.prepare import TOKENIZERS, Corpus, CorpusSteps, discard, prepare, test_pairs
from clearformer.recipe import Recipe
from clearformer.registry import resolve
from clearformer.training.compiling import compiled
from clearformer.training.distributed import World, join_world, leave_world, shard
from clearformer.training.journal import console, read_metrics
from clearformer.training.loop import Progress, Trainer
from clearformer.training.precision import autocast, built_in, make_deterministic, pick_device

SCORES = ("loss", "bleu", "chrf")  # what `validation` gives


def train(
    recipe: Recipe, out: Path, resume: bool = False, device: str = "auto", start: Path | None = None
) -> dict[str, Any]:
    """Run a recipe into a folder; returns the report. `start` is a run whose weights and tokenizer to go on from."""
    where = pick_device(device)
    if where.type == "cpu":
        keep_freed_memory()
    world = join_world(where)
    try:
        run = RunFolder(world.agree(out))
        with run.lock() if world.is_first else nullcontext():
            open_folder(run, recipe, resume, world, start)
            if recipe.train.deterministic:
                make_deterministic()
            trainer, corpus, recipe = set_up(recipe, run, where, world, start)
            if resume and run.last.exists():
                trainer.resume()
                console.print(f"resumed at step {trainer.progress.step:,} of {recipe.train.steps:,}")
            elif start is not None:
                trainer.save()  # from here on the folder stands by itself, whatever becomes of `start`
            if world.is_first:
                write_text(run.recipe, recipe.dump())
            steps = CorpusSteps(corpus, recipe.train.tokens, recipe.train.seed, recipe.train.accumulation, world)
            progress = trainer.train(steps)
    except Interrupted:
        console.print(f"interrupted; saved at step {trainer.progress.step:,}. Go on with:")
        console.print(f"  clearformer train --resume --out {run.path}")
        raise
    finally:
        leave_world()
    return finish(recipe, run, progress, where) if world.is_first else {}


def open_folder(run: RunFolder, recipe: Recipe, resume: bool, world: World, start: Path | None) -> None:
    """See that the folder may be trained into, clear away what a killed process left, and say what is being made."""
    if resume:
        run.require()
    elif run.last.exists() or run.model.exists() or (start is not None and start.resolve() == run.path.resolve()):
        raise CheckpointError(
            f"{run.path} holds a training already", "add --resume to go on with it, or choose another --out"
        )
    elif not run.exists and (found := [name for name in (*TOKENIZERS, "data") if (run.path / name).exists()]):
        raise CheckpointError(f"{run.path} is not a run folder and holds `{found[0]}` already", "choose another --out")
    world.barrier()
    if not world.is_first:
        return
    run.sweep()
    if not resume:
        discard(run)
        if start is None:
            write_text(run.recipe, recipe.dump())  # a kill during preparation, too, can be resumed


def set_up(
    recipe: Recipe, run: RunFolder, device: torch.device, world: World, start: Path | None
) -> tuple[Trainer, Corpus, Recipe]:
    """Everything a training needs, built in the order that makes it repeatable."""
    base = load(start, device="cpu") if start is not None else None
    if world.is_first:
        prepare(recipe, run, (base.source_tokenizer, base.target_tokenizer) if base is not None else None)
    world.barrier()
    corpus = prepare(recipe, run)
    vocab = {"source_vocab": corpus.source_tokenizer.vocab_size, "target_vocab": corpus.target_tokenizer.vocab_size}
    recipe = recipe.with_model(**vocab)
    torch.manual_seed(recipe.train.seed)
    with built_in(recipe.train.precision):
        model = build_model(recipe.model).to(device)
    if base is not None:
        load_weights(model, base.model.state_dict(), str(start))
    if world.is_first:
        announce(recipe, corpus, model, device, world)
    objective = resolve("objective", recipe.objective.kind)(recipe.objective)
    objective = compiled(objective, model, recipe.train.compile)
    if recipe.train.parallel == "shard" and world.size > 1:
        shard(model, device)
    trainer = Trainer(
        model,
        objective,
        recipe.optim.build(model),
        recipe.schedule,
        recipe.train,
        run,
        device,
        world,
        validation(recipe, corpus, device),
        {"tokenizers": [corpus.source_tokenizer.fingerprint(), corpus.target_tokenizer.fingerprint()]},
    )
    return trainer, corpus, recipe


def announce(recipe: Recipe, corpus: Corpus, model: nn.Module, device: torch.device, world: World) -> None:
    """Say aloud what is about to happen."""
    n_parameters = sum(p.numel() for p in model.parameters())
    batches = TokenBatches(corpus.train.lengths, recipe.train.tokens, recipe.train.seed)
    per_epoch = len(batches.steps(0, recipe.train.accumulation * world.size))
    console.print(
        f"{len(corpus.train):,} training pairs, vocabulary {corpus.target_tokenizer.vocab_size:,}; "
        f"{getattr(recipe.model, 'preset', None) or recipe.model.kind} with {n_parameters:,} parameters on {device}"
        f"{f' and {world.size - 1} more' if world.size > 1 else ''}; "
        f"{recipe.train.steps:,} steps, {per_epoch:,} an epoch, {batches.padding():.1%} padding"
    )


def validation(recipe: Recipe, corpus: Corpus, device: torch.device) -> Callable[[nn.Module, int], dict[str, float]]:
    """Loss without smoothing over the whole validation set, and BLEU and a sample translation on its first part."""
    if recipe.train.metric not in SCORES:
        raise ConfigError(
            f"[train] metric = `{recipe.train.metric}` is not validated", suggest(recipe.train.metric, SCORES)
        )
    plain = Translation(TranslationConfig(label_smoothing=0.0))
    batches = TokenBatches(corpus.valid.lengths, recipe.train.tokens, 0).epoch(0)
    text = spread(corpus.valid_text, recipe.evaluate.max_validation)
    references = [[plain_reference(pair.target, recipe) for pair in text]]

    @torch.no_grad()
    def validate(model: nn.Module, step: int) -> dict[str, float]:
        total, count = 0.0, 0
        with torch.compiler.set_stance("force_eager"), autocast(device, recipe.train.precision):
            for rows in batches:
                loss, n = plain(model, corpus.batch(corpus.valid, rows).to(device))
                total, count = total + float(loss), count + n
            translator = Translator(model, corpus.source_tokenizer, corpus.target_tokenizer, recipe.decode)
            beam = recipe.evaluate.validation_beam
            scores = evaluate(translator, [p.source for p in text], references, recipe.evaluate, beam=beam)
        pick = step // max(1, recipe.train.validate_every) % len(text)
        console.print(f"  {text[pick].source}\n  → {scores['translations'][pick]}", style="dim")
        return {"loss": total / count, "bleu": scores["bleu"], "chrf": scores["chrf"]}

    return validate


def spread(examples: list[Example], n: int) -> list[Example]:
    """n of the examples, or all, at even distances: a sorted corpus must not be judged by its shortest sentences."""
    n = min(n, len(examples))
    return [examples[i * len(examples) // n] for i in range(n)]


def plain_reference(text: str, recipe: Recipe) -> str:
    """A reference as decoding would write it: pieces glued where the corpus was cut into pieces beforehand."""
    return text if recipe.text.joiner is None else re.sub(re.escape(recipe.text.joiner) + "( |$)", "", text)


def finish(recipe: Recipe, run: RunFolder, progress: Progress, device: torch.device) -> dict[str, Any]:
    """Test the best weights, draw the pictures, write the report."""
    translator = load(run.path, device=str(device))
    report: dict[str, Any] = {
        "valid": progress.scores,
        "best_step": progress.best_step,
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "tokens_per_second": round(progress.tokens / progress.seconds),
        "seed": recipe.train.seed,
        "parameters": sum(p.numel() for p in translator.model.parameters()),
        "versions": versions(),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    if pairs := test_pairs(run):
        references = [[plain_reference(pair.target, recipe) for pair in pairs]]
        scores = evaluate(translator, [pair.source for pair in pairs], references, recipe.evaluate)
        report["test"] = {name: value for name, value in scores.items() if name != "translations"}
        console.print(f"test: BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f} on {len(pairs):,} sentences")
    write_json(run.report, report)
    draw_curves(run)
    return report


def draw_curves(run: RunFolder) -> None:
    """curves.png, where pictures can be drawn; a run is whole without it."""
    try:
        from clearformer.plots.curves import plot_curves
    except MachineError as error:
        console.print(f"no curves.png: {error}")
        return
    plot_curves(read_metrics(run.metrics), run.path / "curves.png")
