"""The base class of all tasks on --text.

    learn       take the tokenizer of the base model, or train one on the lines of the training text
    store       write each split to disk as one stream of tokens
    evaluate    compute the metrics of the test split on other files

`text_encoder` turns any network that reads text, including the one inside a classifier, into a TextEncoder.
"""

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import Tensors
from clearformer.data.built.folder import is_built, require_kind, use_built
from clearformer.data.built.remote import is_address, local_copy
from clearformer.data.files.open import describe_columns, is_table, open_table
from clearformer.data.store import DocumentStore
from clearformer.data.tally import Skipped
from clearformer.data.text import named_text_column
from clearformer.errors import DataError
from clearformer.handles.text_encoder import TextEncoder
from clearformer.metric import perplexity
from clearformer.objectives import Objective
from clearformer.small_files import read_json as read_small_json
from clearformer.tables import Tables
from clearformer.tasks import TEXT, Given
from clearformer.tasks.built import built_folder, refuse_other_tokenizers
from clearformer.tasks.task import (
    Pretrained,
    Task,
    device_of,
    load_tokenizers,
    refuse_options,
    vocab_keys,
)
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.journal import console
from clearformer.wording import count

CHUNK = 2**24  # tokens counted at once: a corpus may be larger than memory


class TextTask(Task):
    """A task on text. Subclasses define how documents are tokenised, the batches, and the metrics."""

    flag = TEXT

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """Return the files of each split, which may be several, and the column of the text in tables."""
        sources: dict[str, dict[str, Any]] = {}
        for split, files in given.splits.items():
            paths = as_paths(files)
            sources[split] = {"path": paths}
            if is_built(paths[0]):
                require_kind(paths[0], "documents", "--text")
                continue
            if (column := named_text_column(paths)) is not None:
                console.print(describe_columns(next(filter(is_table, paths)), [column]))
                sources[split]["column"] = column
        return sources

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        if (folder := built_folder(self.recipe.data)) is not None:
            self.refuse_built(folder)
            tokenizer = load_tokenizers(RunFolder(folder), 1)[0]
            refuse_other_tokenizers(folder, [tokenizer], base)
        else:
            tokenizer = self.learn_tokenizer() if base is None else base.target_tokenizer
        self.require(tokenizer)
        self.tokenizers = [tokenizer] * self.n_tokenizers

    def learn_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on the lines of the training text, or load the file given by text.file."""
        text = self.recipe.text
        if text.file is not None:
            return Tokenizer.load(text.file)
        documents: Iterable[str] = self.recipe.data.parts("train")
        return train_tokenizer((line for text in documents for line in text.splitlines(keepends=True)), text)

    def refuse_built(self, folder: Path) -> None:
        """Refuse a built folder if this task needs more than one stream of tokens, as BERT needs sentence ends."""
        raise DataError(
            f"{folder} is one stream of tokens, which {self.recipe.objective.kind} cannot be trained on",
            "give the text files, or train a language model: --model gpt",
        )

    def require(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer that lacks the special tokens of this task, before any text is tokenised."""

    def settle(self) -> Tables:
        keys = vocab_keys(self.n_tokenizers)
        return self.recipe.with_vocab(**{key: tok.vocab_size for key, tok in zip(keys, self.tokenizers)})

    def store(self) -> None:
        data = self.recipe.data
        if (folder := built_folder(data)) is not None:
            use_built(folder, self.run.data)
            return
        has_test = data.test is not None or data.held_out_test > 0
        for split in ("test", "valid", "train") if has_test else ("valid", "train"):
            skipped = Skipped()
            stored = self.encode(data.parts(split, skipped), self.path(split))
            if len(stored.tokens) == 0:
                raise DataError(f"the {split} split has no text", f"add more text, or set data.{split}.path")
            unknown = describe_unknown(stored, self.tokenizer)
            console.print(f"{split}: {count(len(stored.tokens), 'token')} in {count(len(stored), 'document')}{unknown}")
        for line in skipped.describe():  # of the training data, which is read last
            console.print(line, markup=False)

    @abstractmethod
    def encode(self, documents: Iterable[str], path: Path) -> DocumentStore:
        """Tokenise documents, or parts of them, and store them in a file."""

    @classmethod
    @torch.no_grad()
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Compute the metrics of the test split on other files, which are divided into documents as in training."""
        refuse_options(given, options)
        data, source = model.recipe.data, cls.sources(given)["train"]
        if data is None:
            data = cls.data.parse({"train": source}, f"--{cls.flag.name}")
        if "column" in source and data.train.column in open_table(next(filter(is_table, source["path"]))).names():
            del source["column"]  # the column of the training data is used
        data = data.changed(train=data.train.changed(**source))
        with TemporaryDirectory() as folder:
            task = cls(model.recipe.with_tables(data=data), RunFolder(Path(folder)))
            task.require(model.target_tokenizer)
            task.tokenizers = model.tokenizers
            if len(task.encode(data.texts(data.train), task.path("test")).tokens) == 0:
                raise DataError(f"{source['path'][0]} has no text", "give a file with text")
            return task.score(model.network.eval(), "test")


def as_paths(files: Any) -> tuple[Path, ...]:
    if is_address(files):
        return (local_copy(files),)
    return tuple(map(Path, [files] if isinstance(files, str | Path) else files))


def describe_unknown(store: DocumentStore, tokenizer: Tokenizer) -> str:
    """Return the percentage of unknown tokens as text. A vocabulary from another text may lack some tokens."""
    if tokenizer.unk_id in (None, tokenizer.eos_id):  # GPT-2 uses one token for both
        return ""
    parts = np.array_split(store.tokens, len(store.tokens) // CHUNK + 1)
    percent = 100 * sum(int((part == tokenizer.unk_id).sum()) for part in parts) / len(store.tokens)
    return f", {percent:.2g} % unknown" if percent else ""


def token_metrics(objective: Objective, model: nn.Module, batches: Iterable[Tensors]) -> dict[str, Any]:
    """Return the mean loss and the perplexity of the predicted tokens, and the number of these tokens."""
    device, total, n_tokens = device_of(model), 0.0, 0
    for batch in batches:
        loss, n = objective(model, batch.to(device))
        total, n_tokens = total + float(loss), n_tokens + n
    return {"loss": total / n_tokens, "perplexity": perplexity(total / n_tokens), "tokens": n_tokens}


def text_encoder(network: nn.Module, model: Pretrained, unit: bool | None) -> TextEncoder:
    """Wrap a network of `model` as a text encoder: the whole network, or the base model inside a classifier.

    The files of a published sentence encoder set its maximum length in tokens, and whether its vectors have length 1;
    `unit` overrides the latter.
    """
    modules = read_json(model.path / "modules.json", [])
    normalizes = any(str(module.get("type")).endswith("Normalize") for module in modules if isinstance(module, dict))
    length = read_json(model.path / "sentence_bert_config.json", {}).get("max_seq_length")
    length = length if isinstance(length, int) and length > 2 else None
    return TextEncoder(network, model.tokenizer, model.name, length, normalizes if unit is None else unit)


def read_json(path: Path, default: Any) -> Any:
    """Read a JSON file next to the weights; return `default` if it does not exist or cannot be parsed."""
    try:
        value = read_small_json(path)
    except (OSError, ValueError):
        return default
    return value if isinstance(value, type(default)) else default
