"""Running text to a language model, judged by its loss on text it has not read."""

from collections.abc import Callable
from functools import lru_cache, partial
from math import exp
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.checkpoint import RunFolder, write_text
from clearformer.data.batch import TextBatch
from clearformer.data.store import DocumentStore
from clearformer.data.streams import Streams
from clearformer.data.text import store_text
from clearformer.data.windows import Windows
from clearformer.errors import DataError
from clearformer.handles.language_model import LanguageModel
from clearformer.loading.handles import load_as
from clearformer.loading.opened import Opened, habits
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.prepare import is_prepared
from clearformer.recipe import Recipe
from clearformer.registry import resolve
from clearformer.tasks import tell_loss
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

SHOWN = 60  # tokens of a sample, at each validation
SPAN = 35  # tokens that gradients reach back through, where state is carried and data.length is not given


class CausalLMTask:
    metrics = ("loss", "perplexity")
    unit = "tokens"
    cut: type[Windows] = Windows

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        self.recipe, self.run = recipe, run
        self.facts: dict[str, Any] = {}

    def prepare(self, base: Opened | None) -> None:
        store = partial(store_text, bos=not self.recipe.data.joined)
        prepare_text(self.recipe, self.run, None if base is None else base.tokenizer, store)

    def open(self) -> Recipe:
        self.tokenizer = Tokenizer.load(self.run.path / "tokenizer.json")
        self.facts = {"tokenizers": [self.tokenizer.fingerprint()]}
        self.recipe = self.recipe.with_vocab(vocab=self.tokenizer.vocab_size)
        return self.recipe

    def windows(self, split: str) -> Any:
        seed = self.recipe.train.seed if split == "train" else 0  # what is judged is the same for all
        return windows_of(self.recipe, DocumentStore(self.run.data / f"{split}.safetensors"), seed, self.cut)

    def describe(self, world: World) -> str:
        windows, train = self.windows("train"), self.recipe.train
        return (
            f"{windows.n_tokens:,} training tokens, vocabulary {self.tokenizer.vocab_size:,}, {windows.n_rows:,} rows "
            f"of {windows.length:,}, {len(windows.steps(0, train.accumulation * world.size)):,} steps an epoch"
        )

    def steps(self, world: World) -> Steps:
        return TextSteps(self.windows("train"), self.recipe.train.accumulation * world.size)

    def validation(self, device: torch.device) -> Validate:
        """Loss without smoothing over the whole validation text, and a sample: how its beginning might go on."""
        recipe, windows, tok = self.recipe, self.windows("valid"), self.tokenizer
        plain = CausalLM(CausalLMConfig())
        first = windows.store.tokens[: int(windows.store.offsets[1]) - 1]  # of the first document, without EOS
        prompt = tok.decode([first[: min(16, (len(first) + 1) // 2)].tolist()])[0]

        @torch.no_grad()
        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, recipe.train.precision):
                loss = tell_loss(plain, model, windows.read(), device)
                writer = LanguageModel(model, tok, recipe.decode, self.run.path.name, **habits(recipe, tok))
                told = writer.generate([prompt], max_new=SHOWN, temperature=0.8, seed=step)[0][0]
            console.print(f"  {prompt}|{told.text}", style="dim", markup=False)
            return {"loss": loss, "perplexity": exp(loss)}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not (self.run.data / "test.safetensors").exists():
            return {}
        model = load_as(LanguageModel, self.run.path, str(device)).model
        scores = measure_loss(model, self.windows("test"), device)
        console.print(
            f"test: loss {scores['loss']:.4f}, perplexity {scores['perplexity']:.2f} on {scores['tokens']:,} tokens"
        )
        return scores


def windows_of(recipe: Recipe, store: DocumentStore, seed: int = 0, cut: type[Windows] = Windows) -> Any:
    """How a text is read: in windows that know nothing of one another; or on and on, by a model that carries state."""
    carries = getattr(resolve("model", recipe.model.kind), "carries", False)
    length = getattr(recipe.data, "length", None) or (SPAN if carries else recipe.model.max_length)
    n_rows = max(1, recipe.train.tokens // length)
    return (Streams if carries else cut)(store, length, n_rows, seed, getattr(recipe.data, "joined", False))


@torch.no_grad()
def measure_loss(model: nn.Module, windows: Any, device: torch.device) -> dict[str, Any]:
    """Over every token of a text that is asked for, predicted once: from at most a window before it, or from all."""
    loss = tell_loss(CausalLM(CausalLMConfig()), model, windows.read(), device)
    return {"loss": loss, "perplexity": exp(loss), "tokens": sum(map(windows.count, windows.whole()))}


class TextSteps:
    """The trainer's view of a text: for each step of each epoch, the windows of every rank."""

    def __init__(self, windows: Any, group: int) -> None:
        self.windows, self.group = windows, group
        self.plan = lru_cache(maxsize=2)(lambda epoch: windows.steps(epoch, group))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[TextBatch], int]:
        group = self.plan(epoch)[position]
        return [self.windows.batch(rows) for rows in world.share(group)], sum(map(self.windows.count, group))


def prepare_text(
    recipe: Recipe, run: RunFolder, tokenizer: Tokenizer | None, store: Callable[..., DocumentStore]
) -> None:
    """The tokenizer and the splits of a text in the run folder, unless they are there: learnt, if none is given."""
    if is_prepared(run):
        return
    tokenizer = tokenizer or learn_tokenizer(recipe)
    run.path.mkdir(parents=True, exist_ok=True)
    write_text(run.path / "tokenizer.json", tokenizer.to_json())
    has_test = recipe.data.test is not None or recipe.data.held_out_test > 0
    for split in ("test", "valid", "train"):  # train comes last: once it is there, everything is
        if split != "test" or has_test:
            stored = store(recipe.data.read(split), tokenizer, run.data / f"{split}.safetensors")
            if len(stored.tokens) == 0:
                raise DataError(f"there is no text for {split}", f"give more, or a file for [data] {split}")
            told = "1 document" if len(stored) == 1 else f"{len(stored):,} documents"
            console.print(f"{split}: {len(stored.tokens):,} tokens of {told}{unknown(stored, tokenizer)}")


def unknown(store: DocumentStore, tokenizer: Tokenizer) -> str:
    """How much of a text its tokenizer has no entry for, in words: it may have been learnt from another."""
    if tokenizer.unk_id in (None, tokenizer.eos_id):  # GPT-2 has one token for both
        return ""
    parts = np.array_split(store.tokens, len(store.tokens) // 2**24 + 1)  # a corpus may be larger than memory
    share = 100 * sum(int((part == tokenizer.unk_id).sum()) for part in parts) / len(store.tokens)
    return f", {share:.2g} % of them unknown" if share else ""


def learn_tokenizer(recipe: Recipe) -> Tokenizer:
    """From the training text, line by line; or the file that the recipe names."""
    if recipe.text.file is not None:
        return Tokenizer.load(recipe.text.file)
    lines = (line for document in recipe.data.read("train") for line in document.splitlines(keepends=True))
    return train_tokenizer(lines, recipe.text)
