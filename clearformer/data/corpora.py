"""The [data] table of a recipe: the files of a run, which examples to drop, and which to hold out.

Each type of data has a class here; the objective of a recipe determines which one it uses: pairs for translation, text
for language modelling, labelled texts for classification, recordings for speech. The class for images is in images.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.data.labels import LabelSource
from clearformer.data.pairs import Filter, PairSource
from clearformer.data.parts import between, document_lengths
from clearformer.data.recordings import Recording, RecordingSource
from clearformer.data.sentences import Cut
from clearformer.data.split import place
from clearformer.data.tags import TagSource
from clearformer.data.tally import Skipped, TooLong
from clearformer.data.text import TextSource


class Corpora(Config):
    """The keys common to every [data] table: three splits; only `train` is required."""

    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "test")

    train: Any
    valid: Any = None
    test: Any = None
    root: Path = Field(Path(), description="folder that relative paths start from; default: the current folder")
    held_out: float | None = Field(
        None, gt=0, lt=1, description="fraction of the training data held out for validation if `valid` is not set"
    )
    held_out_test: float = Field(
        0.0, ge=0, lt=1, description="fraction of the training data held out for testing if `test` is not set"
    )

    def edges(self, split: str) -> tuple[float, float]:
        """Return the interval of a split: a training example belongs to it if its place (see split.py) is inside."""
        valid = (self.held_out or 0.1) if self.valid is None else 0.0
        test = self.held_out_test if self.test is None else 0.0
        return {"valid": (0.0, valid), "test": (valid, valid + test), "train": (valid + test, 1.0)}[split]

    def source(self, split: str) -> Any:
        """Return the source of a split with paths resolved against `root`, or None if the split has no files."""
        source = getattr(self, split)
        if source is None:
            return None
        path = source.path
        return source.changed(path=tuple(self.root / p for p in path) if isinstance(path, tuple) else self.root / path)


class PairCorpora(Corpora):
    """The [data] table of a recipe for translation."""

    train: PairSource
    valid: PairSource | None = None
    test: PairSource | None = None
    prefix: str = Field(
        "", description="task prefix, placed before every source, such as `translate English to German:`"
    )
    filter: Filter = Filter()

    def fraction(self, n_pairs: int) -> float:
        """Return the fraction to hold out: 2 %, but at least 500 pairs, and never more than 10 % or 2,000 pairs."""
        return self.held_out or min(max(0.02, 500 / n_pairs), 0.1, 2000 / n_pairs)


class TextCorpora(Corpora):
    """The [data] table of a recipe for running text."""

    train: TextSource
    valid: TextSource | None = None
    test: TextSource | None = None
    length: int | None = Field(None, gt=0, description="tokens per window; default: model.max_length")

    def text_edges(self, split: str) -> tuple[float, float]:
        """Return the interval of a split, of the length of a document or of the places of documents."""
        valid = (self.held_out or 0.1) if self.valid is None else 0.0
        test = self.held_out_test if self.test is None else 0.0
        edges = {"train": (0.0, 1 - valid - test), "valid": (1 - valid - test, 1 - test), "test": (1 - test, 1.0)}
        return edges[split]

    def read(self, split: str, skipped: Skipped | None = None) -> Iterator[str]:
        """Yield the documents of a split: from its files, or held out from the training files.

        If a file is one document, such as a book, its last part is held out. If it contains many documents, whole
        documents are held out, chosen by a hash of their text.
        """
        if (split_source := self.source(split)) is not None and split != "train":
            yield from split_source.read(skipped)
            return
        start, end = self.text_edges(split)
        source = self.source("train")
        with closing(source.read(skipped)) as documents:
            for document in documents:
                if not source.is_collection:
                    if part := document[int(start * len(document)) : int(end * len(document))]:
                        yield part
                elif start <= place(document) < end:
                    yield document

    def parts(self, split: str, skipped: Skipped | None = None) -> Iterator[str]:
        """Yield the documents of a split as `read` does, but a file that is one document in parts (see parts.py)."""
        split_source, source = self.source(split), self.source("train")
        if split_source is not None and split != "train":
            yield from self.texts(split_source, skipped)
        elif source.is_collection:
            yield from self.read(split, skipped)
        else:
            with closing(source.parts()) as texts:
                lengths = document_lengths(texts)
            with closing(source.parts(skipped)) as texts:
                yield from between(texts, lengths, *self.text_edges(split))

    def texts(self, source: TextSource, skipped: Skipped | None = None) -> Iterator[str]:
        """Yield all documents of a source, long ones in parts."""
        return source.parts(skipped)


class StreamCorpora(TextCorpora):
    """The [data] table of a recipe for language modelling."""

    joined: bool = Field(
        False, description="whether documents attend to earlier ones; true if they form one text, like the lines of PTB"
    )


class SentenceCorpora(TextCorpora):
    """The [data] table of a recipe for models that are trained on sentences, such as BERT."""

    sentences: Cut = Field(
        "line", description="where a sentence ends: `line`, at the end of a line; `mark`, at . ! or ? before a space"
    )

    def parts(self, split: str, skipped: Skipped | None = None) -> Iterator[str]:
        """Yield whole documents: they are divided into sentences first."""
        return self.read(split, skipped)

    def texts(self, source: TextSource, skipped: Skipped | None = None) -> Iterator[str]:
        return source.read(skipped)


class LabelledCorpora(Corpora):
    """The [data] table of a recipe for labelled texts or labelled words."""

    regression: bool = Field(False, description="whether labels are numeric values instead of classes")
    limit: int | None = Field(
        None, gt=0, description="number of training examples to use, drawn with train.seed; default: all"
    )
    max_tokens: int | None = Field(
        None,
        gt=0,
        description="maximum tokens per row; longer texts are truncated; default: max_length of the base model",
    )

    def read(self, split: str, seed: int = 0, training_file: Sequence[Any] | None = None) -> list[Any]:
        """Return the examples of a split: from its file, or held out from the training file by a hash of their text.

        Examples with the same text (the first text of a pair) belong to the same split. `limit` takes the first
        examples of a shuffle, so that a smaller limit selects a subset of a larger one; the validation and test
        examples do not depend on it. If the training file was read before, `training_file` holds all its examples.
        """
        if (split_source := self.source(split)) is not None and split != "train":
            return list(split_source.read())
        start, end = self.edges(split)
        candidates = self.source("train").read() if training_file is None else training_file
        examples = [example for example in candidates if start <= place(example.texts[0]) < end]
        if split == "train" and self.limit is not None:
            order = np.random.default_rng(seed).permutation(len(examples))
            examples = [examples[i] for i in order[: self.limit]]
        return examples


class LabelCorpora(LabelledCorpora):
    """The [data] table of a recipe for text classification."""

    train: LabelSource
    valid: LabelSource | None = None
    test: LabelSource | None = None
    too_long: TooLong = Field(
        "cut",
        description="training texts of more than max_tokens: `cut` them, `drop` them, or `split` them into several "
        "examples; validation and test texts are always cut",
    )


class TagCorpora(LabelledCorpora):
    """The [data] table of a recipe for the classification of words (tagging)."""

    train: TagSource
    valid: TagSource | None = None
    test: TagSource | None = None


class SpeechCorpora(Corpora):
    """The [data] table of a recipe for speech recognition."""

    train: RecordingSource
    valid: RecordingSource | None = None
    test: RecordingSource | None = None

    def read(self, split: str, skipped: Skipped | None = None) -> list[Recording]:
        """Return the recordings of a split: from its list, or held out from the training list by a hash of the name."""
        if (split_source := self.source(split)) is not None and split != "train":
            return list(split_source.read())
        start, end = self.edges(split)
        every = self.source("train").read(skipped)
        return [recording for recording in every if start <= place(recording.path.name) < end]
