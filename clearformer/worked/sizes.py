"""How many parameters: BERT, GPT, T5, and the low-rank difference of LoRA."""

from collections.abc import Iterator

import torch
from torch import nn

from clearformer.models.build import build_model, model_config
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig, Pair
from clearformer.worked.example import Figure, worked


@worked("bert", "BERT-base and BERT-large", "Stanford lectures, p. 10, l.284-285", build_model)
def bert() -> Iterator[Figure]:
    """With the heads of both pretraining tasks, 12 layers of width 768: V·D + 512·D + … by `inspect bert-base`."""
    yield Figure("parameters of BERT-base in millions", millions("bert-base"), 110)
    yield Figure("parameters of BERT-large in millions", millions("bert-large"), 340, tolerance=0.02)
    slip = "12 heads of width 64"
    yield Figure("heads of BERT-base", model_config("bert-base").n_heads, 10, 12, slip)
    yield Figure("heads of BERT-large", model_config("bert-large").n_heads, 16)


@worked("gpt", "GPT of 2018, and GPT-3", "Stanford lectures, p. 12, l.329-341", build_model)
def gpt() -> Iterator[Figure]:
    config = model_config("gpt")
    yield Figure("parameters of GPT in millions", millions("gpt"), 117)
    yield Figure("layers, width, feed-forward width", [config.n_layers, config.d_model, config.d_ff], [12, 768, 3072])
    merges = config.vocab - 478
    yield Figure("tokens beyond the 478 that are no merges", merges, 40_000)
    yield Figure("parameters of GPT-3 in thousand millions", round(millions("gpt3-175b") / 1000), 175)


@worked("t5", "T5 with eleven thousand million parameters", "Stanford lectures, p. 11, l.321", build_model)
def t5() -> Iterator[Figure]:
    yield Figure("parameters of T5-11B in thousand millions", round(millions("t5-11b") / 1000), 11)


@worked("lora", "LoRA learns a low-rank difference", "Stanford lectures, p. 11, l.310-311", add_lora, Pair)
def lora() -> Iterator[Figure]:
    """Rank 8 on queries and values of BERT-base: A is 8×768 and B 768×8, in each of 24 places."""
    with torch.device("meta"):
        model = build_model(model_config("bert-base"))
        whole = count(model)
        add_lora(model, LoraConfig(rank=8, targets=("q", "v")), "example")
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    yield Figure("trained parameters", trained, expected=12 * 2 * (8 * 768 + 768 * 8))
    yield Figure("share of BERT-base in per cent", round(100 * trained / whole, 2), expected=0.27)
    torch.manual_seed(0)
    pair = Pair(torch.empty(13, 11), 0, 13, LoraConfig(rank=2))
    nn.init.normal_(pair.B)
    yield Figure("rank of the difference, for R = 2", int(torch.linalg.matrix_rank(pair.product())), expected=2)


def millions(preset: str) -> int:
    """Return the parameters of a preset, in millions; nothing is allocated."""
    with torch.device("meta"):
        return round(count(build_model(model_config(preset))) / 1e6)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
