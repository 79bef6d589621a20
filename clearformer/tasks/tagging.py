"""Labelled words to a classifier of words, judged by how many it gets right; or to a regression of each word."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import is_asked
from clearformer.data.corpora import TagCorpora
from clearformer.data.tags import Tagged, TagRows
from clearformer.handles.batching import read_tokens
from clearformer.handles.tagger import Tagger
from clearformer.objectives.classification import TokenClassification
from clearformer.tables import Tables
from clearformer.tasks.classification import LabelTask, judge, max_tokens
from clearformer.tasks.task import Pretrained, device_of


class TaggingTask(LabelTask):
    data = TagCorpora
    objective = TokenClassification
    form = TagRows
    columns = ("words", "labels")

    def settle(self) -> Tables:
        """No pooling: every token is judged."""
        return super().settle().with_model(pooling="none")

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        rows = self.split(split).rows
        scores = read_tokens(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device_of(model))
        answers = torch.from_numpy(rows.classes)
        return judge(scores[is_asked(answers)], answers[is_asked(answers)])

    @classmethod
    def handle(cls, model: Pretrained) -> Tagger:
        return Tagger(model.network, model.tokenizer, model.classes or [], model.name, max_tokens(model))

    @classmethod
    def judge_examples(cls, model: Pretrained, examples: Sequence[Tagged], answers: Tensor) -> dict[str, Any]:
        """The examples that are counted are words; sentences are counted beside them."""
        scores = judge(cls.handle(model).scores([example.words for example in examples]), answers)
        return {**scores, "sentences": len(examples)}
