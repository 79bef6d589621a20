"""Running text to a language model that reads its prompt both ways, judged by its loss on what comes after."""

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
        """The model reads prompts both ways from now on."""
        return super().settle().with_model(prompt="full")

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Every token is predicted, from those before it: the numbers compare with any language model's."""
        return CausalLMTask.evaluate(model, given, **options)
