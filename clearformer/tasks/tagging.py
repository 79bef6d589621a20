"""Labelled words to a classifier of words, judged by how many of them it gets right; or to a regression of each."""

from typing import Any

import torch
from torch import nn

from clearformer.data.batch import is_asked
from clearformer.data.labels import LabelRows
from clearformer.data.tags import TagRows
from clearformer.handles.batching import read_tokens
from clearformer.recipe import Recipe
from clearformer.tasks.classification import ClassificationTask, judge


class TaggingTask(ClassificationTask):
    form = TagRows

    def fitted(self, recipe: Recipe) -> Recipe:
        return recipe.with_model(pooling="none")

    def measure(self, model: nn.Module, rows: LabelRows, device: torch.device) -> dict[str, Any]:
        scores = read_tokens(model, rows.tokens, rows.segments, self.tokenizer.pad_id, device)
        answers = torch.from_numpy(rows.classes)
        return judge(scores[is_asked(answers)], answers[is_asked(answers)])
