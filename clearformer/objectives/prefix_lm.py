"""Prefix language modelling: read the first part of a text both ways, then predict the rest of it, word by word.

    loss = − Σ_t≥n log p(x_t+1 | x_1 … x_t),    x_1 … x_n see each other whole        Raffel et al. 2020, section 3.2.3

Where the first part ends, data/prefixes.py draws; it also leaves out the labels that it shows. The loss is that of a
language model, and so is the model: what differs is the mask.
"""

from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig


class PrefixLMConfig(CausalLMConfig):
    """[objective]"""

    kind: str = "prefix-lm"


class PrefixLM(CausalLM):
    Config = PrefixLMConfig
    task = "prefix-lm"
