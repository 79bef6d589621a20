"""The tagging task: predict a class, or a number, for every word of a text."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import is_labelled
from clearformer.data.corpora import TagCorpora
from clearformer.data.tags import Tagged, TagRows
from clearformer.handles.batching import read_tokens
from clearformer.handles.tagger import Tagger
from clearformer.objectives.classification import TokenClassification
from clearformer.tables import Tables
from clearformer.tasks.classification import LabelTask, max_tokens
from clearformer.tasks.task import Pretrained, device_of


class TaggingTask(LabelTask):
    data = TagCorpora
    objective = TokenClassification
    form = TagRows
    columns = ("words", "labels")
    notes_imbalance = False

    def settle(self) -> Tables:
        """Set model.pooling to "none": every token is classified."""
        return super().settle().with_model(pooling="none")

    def outputs(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        rows = self.split(split).rows
        outputs = read_tokens(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device_of(model))
        labels = torch.from_numpy(rows.classes)
        return outputs[is_labelled(labels)], labels[is_labelled(labels)]

    @classmethod
    def handle(cls, model: Pretrained) -> Tagger:
        handle = Tagger(model.network, model.tokenizer, model.classes or [], model.name, max_tokens(model))
        handle.temperature = model.temperature
        return handle

    @classmethod
    def read_examples(cls, model: Pretrained, examples: Sequence[Tagged]) -> Tensor:
        return cls.handle(model).logits([example.words for example in examples])

    @classmethod
    def rows(cls, examples: Sequence[Tagged]) -> list[dict[str, Any]]:
        return [{"word": word, "text": " ".join(example.words)} for example in examples for word in example.words]

    @classmethod
    def counts(cls, examples: Sequence[Tagged]) -> dict[str, int]:
        """Return the number of sentences; `examples` in the metrics is the number of words."""
        return {"sentences": len(examples)}
