"""Prefix language modelling: the first n tokens of a text are its context, read in both directions.

    loss = − Σ_t≥n log p(x_t+1 | x_1 … x_t),    x_1 … x_n attend to one another        Raffel et al. 2020, section 3.2.3

data/prefixes.py draws n, and removes the labels inside the context. Model and loss are the same as in causal language
modelling; only the attention mask differs.
"""

from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig


class PrefixLMConfig(CausalLMConfig):
    """The [objective] table of a recipe: settings of prefix language modelling."""

    kind: str = "prefix-lm"


class PrefixLM(CausalLM):
    Config = PrefixLMConfig
    task = "prefix-lm"
