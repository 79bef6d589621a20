"""Induction heads, by which a language model copies from earlier in its context (Olsson et al. 2022).

    … A B … A → B      the induction head finds the earlier A by the token before each position, and copies what follows

    induction score        mean of A[t, t − n + 1]         attention to the token after the first occurrence
    previous-token score   mean of A[t, t − 1]             the heads that the induction heads build on

over the second half of n random tokens repeated once: x_t = x_{t−n}. Nothing else could predict random tokens. The gain
is how much more probable the second half is: mean log p(second half) − mean log p(first half).
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import TextBatch
from clearformer.errors import ConfigError
from clearformer.handles.handle import Handle
from clearformer.handles.language_model import LanguageModel
from clearformer.lens.heads import by_kind
from clearformer.lens.points import points
from clearformer.lens.session import Lens
from clearformer.wording import count

LENGTH, ROWS = 50, 16


@torch.no_grad()
def induction(handle: Handle, length: int = LENGTH, n_rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    """Return the scores of every head of a language model, and its gain, on n_rows texts of random repeated tokens."""
    if not isinstance(handle, LanguageModel):
        raise ConfigError(f"{handle.name} is {handle.kind}, not a language model", "choose a GPT: --model runs/mine")
    if not any(name.endswith(".attn.pattern") for name in points(handle.model)):
        raise ConfigError(f"{handle.name} has no attention heads", "choose a Transformer, such as a GPT")
    tokenizer = handle.tokenizer
    special = {getattr(tokenizer, f"{name}_id", None) for name in ("pad", "bos", "eos", "unk", "mask", "sep", "cls")}
    ids = [index for index in range(tokenizer.vocab_size) if index not in special]
    first = list(handle.opening or [tokenizer.bos_id])
    n = min(length, (handle.model.config.max_length - len(first)) // 2)
    tokens = repeated(torch.tensor(ids), n, n_rows, seed).to(handle.device)
    opening = torch.tensor(first, device=handle.device).expand(n_rows, -1)
    scores, gain = scores_of(handle.model, torch.cat([opening, tokens], 1), n)
    panels = [{**panel, "name": f"{kind} score"} for kind, by in scores.items() for panel in by_kind(by)]
    return {
        "title": f"Induction heads of {handle.name}, on {count(n, 'random token')} repeated",
        "label": "mean attention",
        "gain": gain,
        "panels": panels,
    }


def repeated(ids: Tensor, n: int, n_rows: int, seed: int) -> Tensor:
    """Draw n random ids per row, different ones if there are enough, and repeat them: (B, 2n)."""
    draw = torch.Generator().manual_seed(seed)
    if len(ids) >= n:
        half = torch.stack([ids[torch.randperm(len(ids), generator=draw)[:n]] for _ in range(n_rows)])
    else:
        half = ids[torch.randint(len(ids), (n_rows, n), generator=draw)]
    return half.repeat(1, 2)


def scores_of(model: Any, tokens: Tensor, n: int) -> tuple[dict[str, dict[str, list[float]]], float]:
    """Return both scores of every head by the path of its layer, and the gain. Only the last 2n tokens count."""
    T = tokens.size(1)
    with Lens(model, keep=["*.attn.pattern"]) as look:
        logits = model(TextBatch(tokens, tokens, n_tokens=tokens.numel()))
    t = torch.arange(T - n, T, device=tokens.device)
    scores: dict[str, dict[str, list[float]]] = {"induction": {}, "previous-token": {}}
    for name in look:
        pattern = look[name][..., -T:]  # without a learned prefix
        path = name.removesuffix(".pattern")
        scores["induction"][path] = pattern[:, :, t, t - n + 1].mean((0, 2)).tolist()
        scores["previous-token"][path] = pattern[:, :, t, t - 1].mean((0, 2)).tolist()
    return scores, gain_of(logits, tokens, n)


def gain_of(logits: Tensor, tokens: Tensor, n: int) -> float:
    """Return mean log p(second half) − mean log p(first half), without the first token of each."""
    logprobs = logits[:, :-1].float().log_softmax(-1).gather(2, tokens[:, 1:, None])[:, :, 0]  # of tokens 1 …
    second, first = logprobs[:, -(n - 1) :], logprobs[:, -(2 * n - 1) : -n]
    return float(second.mean() - first.mean())
