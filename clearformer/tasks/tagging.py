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
from clearformer.tasks.classification import LabelTask, label_metrics, max_tokens
from clearformer.tasks.task import Pretrained, device_of


class TaggingTask(LabelTask):
    data = TagCorpora
    objective = TokenClassification
    form = TagRows
    columns = ("words", "labels")

    def settle(self) -> Tables:
        """Set model.pooling to "none": every token is classified."""
        return super().settle().with_model(pooling="none")

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        rows = self.split(split).rows
        outputs = read_tokens(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device_of(model))
        labels = torch.from_numpy(rows.classes)
        return label_metrics(outputs[is_labelled(labels)], labels[is_labelled(labels)])

    @classmethod
    def handle(cls, model: Pretrained) -> Tagger:
        return Tagger(model.network, model.tokenizer, model.classes or [], model.name, max_tokens(model))

    @classmethod
    def example_metrics(cls, model: Pretrained, examples: Sequence[Tagged], labels: Tensor) -> dict[str, Any]:
        """Compute the metrics. `examples` is the number of words, `sentences` the number of sentences."""
        metrics = label_metrics(cls.handle(model).logits([example.words for example in examples]), labels)
        return {**metrics, "sentences": len(examples)}
