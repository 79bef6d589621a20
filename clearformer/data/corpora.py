"""[data]: which files a training reads, what is left out of them, and what is held out for validation and test.

One class for each kind of data. Which one a recipe has follows from its objective: pairs for translation, text for
language modelling, labelled texts for classification, recordings for speech. That of pictures is in images.py.
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
from clearformer.data.recordings import Recording, RecordingSource
from clearformer.data.sentences import Cut
from clearformer.data.split import place
from clearformer.data.tags import TagSource
from clearformer.data.text import TextSource


class Corpora(Config):
    """What every [data] has: three splits, of which only the first must be there. Each class names its sources."""

    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "test")

    train: Any
    valid: Any = None
    test: Any = None
    root: Path = Field(Path(), description="the folder that paths start from; where the command runs, if not given")
    held_out: float | None = Field(None, gt=0, lt=1, description="share kept for validation when there is no valid set")
    held_out_test: float = Field(0.0, ge=0, lt=1, description="share kept for the test when there is no test set")

    def edges(self, split: str) -> tuple[float, float]:
        """Between which places (data/split.py) an example of the training files belongs to a split."""
        valid = (self.held_out or 0.1) if self.valid is None else 0.0
        test = self.held_out_test if self.test is None else 0.0
        return {"valid": (0.0, valid), "test": (valid, valid + test), "train": (valid + test, 1.0)}[split]

    def source(self, split: str) -> Any:
        """The corpus of a split, its paths completed; None if it has none of its own."""
        found = getattr(self, split)
        if found is None:
            return None
        path = found.path
        return found.changed(path=tuple(self.root / p for p in path) if isinstance(path, tuple) else self.root / path)


class PairCorpora(Corpora):
    """[data] of a translator."""

    train: PairSource
    valid: PairSource | None = None
    test: PairSource | None = None
    prefix: str = Field("", description="the task's name, put before every source: translate English to German:")
    filter: Filter = Filter()

    def fraction(self, n_pairs: int) -> float:
        """How much of n pairs to hold out: 2 %, but at least 500 pairs if that is at most 10 %, and at most 2,000."""
        return self.held_out or min(max(0.02, 500 / n_pairs), 0.1, 2000 / n_pairs)


class TextCorpora(Corpora):
    """[data] of text: files, and how much of it is read at a time."""

    train: TextSource
    valid: TextSource | None = None
    test: TextSource | None = None
    length: int | None = Field(None, gt=0, description="tokens read at a time; model.max_length when not given")

    def read(self, split: str) -> Iterator[str]:
        """The documents of a split: those of its own files, or those held out of the training files.

        A book is held out by its last pages, a collection by whole documents, which their text chooses.
        """
        if (own := self.source(split)) is not None and split != "train":
            yield from own.read()
            return
        valid = (self.held_out or 0.1) if self.valid is None else 0.0
        test = self.held_out_test if self.test is None else 0.0
        edges = {"train": (0.0, 1 - valid - test), "valid": (1 - valid - test, 1 - test), "test": (1 - test, 1.0)}
        start, end = edges[split]
        source = self.source("train")
        with closing(source.read()) as documents:
            for document in documents:
                if not source.is_collection:
                    if part := document[int(start * len(document)) : int(end * len(document))]:
                        yield part
                elif start <= place(document) < end:
                    yield document


class StreamCorpora(TextCorpora):
    """[data] of a language model."""

    joined: bool = Field(
        False, description="a document may look back at those before it: for the lines of one text, such as PTB's"
    )


class SentenceCorpora(TextCorpora):
    """[data] of a model that reads sentences, such as BERT."""

    sentences: Cut = Field("line", description="what one sentence is: a line, or what ends with a mark such as . ! ?")


class JudgedCorpora(Corpora):
    """[data] of what is judged, text by text or word by word."""

    regression: bool = Field(False, description="labels are numbers to come close to, not classes")
    limit: int | None = Field(None, gt=0, description="train on so many examples, drawn by train.seed: learning curves")
    max_tokens: int | None = Field(None, gt=0, description="longest row; longer texts are cut. model.base.max_length")

    def read(self, split: str, seed: int = 0, training_file: Sequence[Any] | None = None) -> list[Any]:
        """The examples of a split: those of its own file, or those held out of the training file by their text.

        Examples with the same text, the first of a pair, land on one side. `limit` takes the first ones of a shuffle,
        so that fewer are some of the more; what is held out for validation and test stays the same. `training_file`
        has all examples of the training file, if it was read before.
        """
        if (own := self.source(split)) is not None and split != "train":
            return list(own.read())
        start, end = self.edges(split)
        every = self.source("train").read() if training_file is None else training_file
        examples = [example for example in every if start <= place(example.texts[0]) < end]
        if split == "train" and self.limit is not None:
            order = np.random.default_rng(seed).permutation(len(examples))
            examples = [examples[i] for i in order[: self.limit]]
        return examples


class LabelCorpora(JudgedCorpora):
    """[data] of a classifier of texts."""

    train: LabelSource
    valid: LabelSource | None = None
    test: LabelSource | None = None


class TagCorpora(JudgedCorpora):
    """[data] of a classifier of words."""

    train: TagSource
    valid: TagSource | None = None
    test: TagSource | None = None


class SpeechCorpora(Corpora):
    """[data] of speech to text."""

    train: RecordingSource
    valid: RecordingSource | None = None
    test: RecordingSource | None = None

    def read(self, split: str) -> list[Recording]:
        """The recordings of a split: those of its own list, or those held out of the training list by their names."""
        if (own := self.source(split)) is not None and split != "train":
            return list(own.read())
        start, end = self.edges(split)
        return [found for found in self.source("train").read() if start <= place(found.path.name) < end]
