"""The task of prefix LMs: the context is read in both directions, and the loss is measured on the rest of the text."""

from typing import Any

from clearformer.data.prefixes import PrefixWindows
from clearformer.objectives.prefix_lm import PrefixLM
from clearformer.tables import Tables
from clearformer.tasks import Given
from clearformer.tasks.causal_lm import CausalLMTask
from clearformer.tasks.task import Pretrained


class PrefixLMTask(CausalLMTask):
    objective = PrefixLM
    windows = PrefixWindows

    def settle(self) -> Tables:
        """From now on the model reads prompts in both directions."""
        return super().settle().with_model(prompt="full")

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Predicts every token from the tokens before it, so the metrics are comparable with any language model."""
        return CausalLMTask.evaluate(model, given, **options)
