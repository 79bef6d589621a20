"""Running text to a language model that reads its prompt both ways, judged by its loss on what comes after."""

from clearformer.data.prefixes import PrefixWindows
from clearformer.recipe import Recipe
from clearformer.tasks.causal_lm import CausalLMTask


class PrefixLMTask(CausalLMTask):
    cut = PrefixWindows

    def open(self) -> Recipe:
        """The model is told, so that it will read prompts as it has learnt to."""
        self.recipe = super().open().with_model(prompt="full")
        return self.recipe
