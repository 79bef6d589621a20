"""The translation task, evaluated by BLEU, chrF and loss."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Batch
from clearformer.data.buckets import BucketBatches
from clearformer.data.built.folder import is_built, require_kind, use_built
from clearformer.data.built.order import ShardedBatches
from clearformer.data.built.remote import is_address, local_copy
from clearformer.data.built.stores import BuiltPairs, open_pairs
from clearformer.data.collate import TokenBatches, pad_batch
from clearformer.data.corpora import PairCorpora
from clearformer.data.files.open import describe_columns
from clearformer.data.pairs import Example, named_pair_columns, read_pairs
from clearformer.data.parallel import PairSurvey, encode_pairs, learn_tokenizers, read_test, survey_pairs
from clearformer.data.sources import evenly_spaced, read_lines, require_file
from clearformer.data.store import PairStore
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.evaluate import evaluate
from clearformer.handles.translator import Translator
from clearformer.interop.engines import decoder_for
from clearformer.metric import BLEU, CHRF, LOSS, Metric
from clearformer.models.build import model_class
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.tables import Tables
from clearformer.tasks import PAIRS, Given
from clearformer.tasks.auto.pairs import plan_finetune_pairs, plan_pairs
from clearformer.tasks.built import built_folder, refuse_other_tokenizers
from clearformer.tasks.task import (
    Plan,
    Pretrained,
    Request,
    Task,
    device_of,
    load_tokenizers,
    mean_loss,
)
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.training.journal import console
from clearformer.training.recompute import in_chunks
from clearformer.wording import count


class PairBatches:
    """Tokenised pairs in batches of similar length, with at most `tokens` tokens per side, including padding."""

    is_drawn = False

    def __init__(
        self,
        store: PairStore | BuiltPairs,
        tokens: int,
        seed: int,
        target: Tokenizer,
        start_id: int,
        is_fixed: bool = False,
        cache: Path | None = None,
    ) -> None:
        self.store, self.target, self.start_id = store, target, start_id
        self.batches: BucketBatches | TokenBatches | ShardedBatches
        if isinstance(store, BuiltPairs) and not is_fixed:
            shards = store.shards
            self.batches = ShardedBatches(store.lengths, shards.edges, tokens, seed, shards.prefetch, cache)
        else:
            self.batches = (BucketBatches if is_fixed else TokenBatches)(store.lengths, tokens, seed)

    def steps(self, epoch: int, group: int) -> Sequence[Sequence[np.ndarray]]:
        return self.batches.steps(epoch, group)

    def batch(self, rows: np.ndarray, key: tuple[int, int] = (0, 0)) -> Batch:
        shape = self.batches.shape(rows) if isinstance(self.batches, BucketBatches) else None
        return pad_batch(*self.store.rows(rows), self.target.pad_id, self.start_id, self.target.eos_id, shape)

    def count(self, rows: np.ndarray) -> int:
        return int(self.store.lengths[rows, 1].sum()) + len(rows)  # with EOS


class TranslationTask(Task):
    flag = PAIRS
    data = PairCorpora
    objective = Translation
    n_tokenizers = 2
    batch_unit = "tokens per side"

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.translations: list[str] = []  # output of the last validation
        self.shapes = "few" if recipe.train.batches == "fixed" else "many"

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return BLEU, CHRF, LOSS

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        """Check that lengths and vocabularies fit the model. Registered models may lack the keys that are compared."""
        pair_filter, max_length = getattr(recipe.data, "filter", None), getattr(recipe.model, "max_length", None)
        longest = 0 if pair_filter is None else pair_filter.max_tokens
        if max_length is not None and longest >= max_length:  # BOS or EOS is added
            raise ConfigError(
                f"{where}: data.filter.max_tokens = {longest} is too large for model.max_length = {max_length}",
                f"set data.filter.max_tokens = {max_length - 1}, or model.max_length = {longest + 1}",
            )
        share = getattr(recipe.model, "share", None)
        if share in ("embeddings", "all") and not recipe.text.shared and recipe.text.file is None:
            raise ConfigError(
                f"{where}: text.shared = false learns two vocabularies, "
                f'but model.share = "{share}" ties their embeddings',
                'set model.share = "decoder", or text.shared = true',
            )

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """Return the files and columns of each split. The columns default to well-known names."""
        paths = {split: as_paths(corpus) for split, corpus in given.splits.items()}
        if isinstance(train := paths["train"], Path) and is_built(train):
            require_kind(train, "pairs", "--pairs")
        columns = {
            split: given.options.get("columns") or ((0, 1) if is_built(path) else named_pair_columns(path))
            for split, path in paths.items()
        }
        for split, names in columns.items():
            if "columns" not in given.options and isinstance(path := paths[split], Path) and isinstance(names[0], str):
                console.print(describe_columns(path, names))
        return {split: {"path": path, "columns": columns[split]} for split, path in paths.items()}

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_pairs(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_pairs(request, start, old)

    def learn(self, base: Pretrained | None, survey: PairSurvey | None) -> None:
        if (folder := built_folder(self.recipe.data)) is not None:
            self.tokenizers = load_tokenizers(RunFolder(folder), self.n_tokenizers)
            refuse_other_tokenizers(folder, self.tokenizers, base)
            return
        self.survey = survey or survey_pairs(self.recipe.data)
        if base is not None:
            self.tokenizers = [base.source_tokenizer, base.target_tokenizer]
        else:
            self.tokenizers = learn_tokenizers(self.recipe.data, self.recipe.text, self.survey)

    def settle(self) -> Tables:
        source, target = self.tokenizers
        return self.recipe.with_vocab(source_vocab=source.vocab_size, target_vocab=target.vocab_size)

    def store(self) -> None:
        if (folder := built_folder(self.recipe.data)) is not None:
            use_built(folder, self.run.data)
            return
        fractions = self.survey.fractions(self.recipe.data)
        for line in encode_pairs(self.recipe.data, self.tokenizers, fractions, self.run.data):
            console.print(line, markup=False)

    def split(self, name: str) -> PairBatches:
        train, target = self.recipe.train, self.tokenizers[1]
        seed = train.seed if name == "train" else 0
        is_fixed = name == "train" and train.batches == "fixed"
        start = start_id(self.recipe, target)
        return PairBatches(
            open_pairs(self.path(name)), train.tokens, seed, target, start, is_fixed, self.run.data / "batches.json"
        )

    def describe(self) -> str:
        split = self.split("train")
        return (
            f"{count(len(split.store), 'training pair')}, vocabulary {self.tokenizers[1].vocab_size:,}, "
            f"{split.batches.padding():.1%} padding"
        )

    @cached_property
    def valid_text(self) -> list[Example]:
        """The validation pairs that are translated: at most evaluate.max_validation, evenly spaced."""
        pairs = json.loads((self.run.data / "valid.json").read_text(encoding="utf-8"))
        return evenly_spaced([Example(*pair) for pair in pairs], self.recipe.evaluate.max_validation)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Compute the loss over the whole split, without label smoothing, and BLEU and chrF on `valid_text`."""
        plain = in_chunks(Translation(TranslationConfig(label_smoothing=0.0)), self.recipe.train.recompute)
        batches = self.split(split)
        examples = (batches.batch(rows) for rows in batches.batches.epoch(0))
        loss = mean_loss(plain, model, examples, device_of(model))
        text, config = self.valid_text, self.recipe.evaluate
        references = [[plain_reference(pair.target, self.recipe) for pair in text]]
        translator = Translator(
            model, self.tokenizers[0], self.tokenizers[1], self.recipe.decode, prefix=self.recipe.data.prefix
        )
        sources = [pair.source for pair in text]
        metrics = evaluate(translator, sources, references, config, beam=config.validation_beam)
        self.translations = metrics.pop("translations")
        return {"loss": loss, **metrics}

    def sample(self, model: nn.Module, step: int) -> str:
        """Show one of the translations of the current validation."""
        pick = step // max(1, self.recipe.train.validate_every) % len(self.valid_text)
        return f"  {self.valid_text[pick].source}\n  → {self.translations[pick]}"

    @property
    def has_test(self) -> bool:
        return (self.run.data / "test.jsonl").exists()

    def test(self, model: Pretrained) -> dict[str, Any]:
        pairs = read_test(self.run.data)
        references = [[plain_reference(pair.target, self.recipe) for pair in pairs]]
        metrics = evaluate(self.handle(model), [pair.source for pair in pairs], references, self.recipe.evaluate)
        summary = ", ".join(metric.format(metrics[metric.name]) for metric in (BLEU, CHRF))
        console.print(f"test: {summary} on {count(len(pairs), 'sentence')}")
        return {name: value for name, value in metrics.items() if name != "translations"}

    @classmethod
    def handle(cls, model: Pretrained) -> Translator:
        prefix = getattr(model.recipe.data, "prefix", "")
        return Translator(
            model.network, model.source_tokenizer, model.target_tokenizer, model.recipe.decode, model.name, prefix
        )

    @classmethod
    def evaluate(
        cls,
        model: Pretrained,
        given: Given,
        refs: Iterable[str | Path] = (),
        tokenize: str | None = None,
        lowercase: bool | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        engine: str = "auto",
        **search: Any,
    ) -> dict[str, Any]:
        """Compute BLEU and chrF of translations. Returns bleu, chrf, signatures, sentences and translations.

        `refs` are files with further references, one per line. `tokenize` and `lowercase` override [evaluate] of the
        recipe; `search`, such as beam=1 or length_penalty=0.6, overrides [decode]; `engine` is an argument of `load`.
        `progress(done, total)` is called after every sentence.
        """
        source = cls.sources(given)["train"]
        examples = list(read_pairs(source["path"], source["columns"]))
        lines = [[pair.target for pair in examples], *(read_references(Path(path), len(examples)) for path in refs)]
        overrides = {"tokenize": tokenize, "lowercase": lowercase}
        config = model.recipe.evaluate.changed(
            **{name: value for name, value in overrides.items() if value is not None}
        )
        n_done = 0

        def advance(n: int) -> None:
            nonlocal n_done
            n_done += n
            progress(n_done, len(examples))

        references = [[plain_reference(line, model.recipe) for line in file] for file in lines]
        translator = cls.handle(model)
        translator.decoder = decoder_for(translator.model, engine, console.print)
        return evaluate(translator, [pair.source for pair in examples], references, config, advance, **search)


def as_paths(corpus: Any) -> Path | tuple[Path, Path]:
    if is_address(corpus):
        return local_copy(corpus)
    return (Path(corpus[0]), Path(corpus[1])) if isinstance(corpus, tuple | list) else Path(corpus)


def start_id(recipe: Tables, tokenizer: Tokenizer) -> int:
    """Return the id of the token that the decoder starts with: BOS, unless recipe or model class set another."""
    role = getattr(recipe.model, "begins_with", None) or getattr(model_class(recipe.model.kind), "begins_with", "bos")
    return int(getattr(tokenizer, f"{role}_id"))


def plain_reference(text: str, recipe: Tables) -> str:
    """Return a reference in the form of decoded output: if the corpus was already tokenised, its tokens are joined."""
    return text if recipe.text.joiner is None else re.sub(re.escape(recipe.text.joiner) + "( |$)", "", text)


def read_references(path: Path, n: int) -> list[str]:
    require_file(path)
    lines = [clean(line) for line in read_lines(path)]
    if len(lines) != n:
        raise DataError(
            f"{path} has {count(len(lines), 'line')} for {count(n, 'pair')}",
            "the file needs exactly one line, with a reference, for each pair",
        )
    return lines
