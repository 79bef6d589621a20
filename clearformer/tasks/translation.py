"""Sentence pairs to a translator, judged by loss, BLEU and chrF."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.collate import TokenBatches
from clearformer.evaluation.evaluate import evaluate
from clearformer.handles.translator import Translator
from clearformer.loading.handles import load_as
from clearformer.loading.opened import Opened
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.prepare import CorpusSteps, prepare, test_pairs
from clearformer.recipe import Recipe
from clearformer.tasks import tell_loss
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

Item = TypeVar("Item")


class TranslationTask:
    metrics = ("bleu", "chrf", "loss")
    unit = "tokens"

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        self.recipe, self.run = recipe, run
        self.facts: dict[str, Any] = {}

    def prepare(self, base: Opened | None) -> None:
        prepare(self.recipe, self.run, None if base is None else (base.source_tokenizer, base.target_tokenizer))

    def open(self) -> Recipe:
        self.corpus = prepare(self.recipe, self.run)
        source, target = self.corpus.source_tokenizer, self.corpus.target_tokenizer
        self.facts = {"tokenizers": [source.fingerprint(), target.fingerprint()]}
        self.recipe = self.recipe.with_vocab(source_vocab=source.vocab_size, target_vocab=target.vocab_size)
        return self.recipe

    def describe(self, world: World) -> str:
        train = self.recipe.train
        batches = TokenBatches(self.corpus.train.lengths, train.tokens, train.seed)
        per_epoch = len(batches.steps(0, train.accumulation * world.size))
        return (
            f"{len(self.corpus.train):,} training pairs, vocabulary {self.corpus.target_tokenizer.vocab_size:,}, "
            f"{per_epoch:,} steps an epoch, {batches.padding():.1%} padding"
        )

    def steps(self, world: World) -> Steps:
        train = self.recipe.train
        return CorpusSteps(self.corpus, train.tokens, train.seed, train.accumulation, world)

    def validation(self, device: torch.device) -> Validate:
        """Loss without smoothing over the whole validation set; BLEU and a sample translation on some of it."""
        corpus, recipe = self.corpus, self.recipe
        plain = Translation(TranslationConfig(label_smoothing=0.0))
        batches = TokenBatches(corpus.valid.lengths, recipe.train.tokens, 0).epoch(0)
        text = spread(corpus.valid_text, recipe.evaluate.max_validation)
        references = [[plain_reference(pair.target, recipe) for pair in text]]

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, recipe.train.precision):
                loss = tell_loss(plain, model, (corpus.batch(corpus.valid, rows) for rows in batches), device)
                sides = corpus.source_tokenizer, corpus.target_tokenizer
                translator = Translator(model, *sides, recipe.decode, prefix=recipe.data.prefix)
                beam = recipe.evaluate.validation_beam
                scores = evaluate(translator, [p.source for p in text], references, recipe.evaluate, beam=beam)
            pick = step // max(1, recipe.train.validate_every) % len(text)
            console.print(f"  {text[pick].source}\n  → {scores['translations'][pick]}", style="dim")
            return {"loss": loss, "bleu": scores["bleu"], "chrf": scores["chrf"]}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not (pairs := test_pairs(self.run)):
            return {}
        references = [[plain_reference(pair.target, self.recipe) for pair in pairs]]
        translator = load_as(Translator, self.run.path, str(device))
        scores = evaluate(translator, [pair.source for pair in pairs], references, self.recipe.evaluate)
        console.print(f"test: BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f} on {len(pairs):,} sentences")
        return {name: value for name, value in scores.items() if name != "translations"}


def spread(items: Sequence[Item], n: int) -> list[Item]:
    """n of the items, or all, at even distances: a sorted corpus must not be judged by its shortest sentences."""
    n = min(n, len(items))
    return [items[i * len(items) // n] for i in range(n)]


def plain_reference(text: str, recipe: Recipe) -> str:
    """A reference as decoding would write it: pieces glued where the corpus was cut into pieces beforehand."""
    return text if recipe.text.joiner is None else re.sub(re.escape(recipe.text.joiner) + "( |$)", "", text)
