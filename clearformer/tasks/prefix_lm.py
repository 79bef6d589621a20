"""The prefix-LM task: the context is read in both directions, and the loss is computed on the rest of the text."""

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
        """Set model.prompt to "full", so that the trained model reads prompts in both directions."""
        return super().settle().with_model(prompt="full")

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Predict every token from the tokens before it, so that metrics are comparable with other language models."""
        return CausalLMTask.evaluate(model, given, **options)
