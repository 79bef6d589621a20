"""The alternatives at each step: which tokens a model could have chosen, and the rank of the token that the text has.

    p_t = softmax(logits_t),      rank of y_t = 1 + the number of tokens with a larger logit

A language model predicts the next token at each position, and a translator each token of the translation. A masked
model predicts the token at each position, which it sees unless it is masked.
"""

from typing import Any

import torch

from clearformer.errors import ConfigError
from clearformer.generation.decode import widen
from clearformer.lens.outputs import by_row, check_length, speller, top_tokens
from clearformer.lens.reading import Reading


def alternatives(reading: Reading, top: int = 5) -> dict[str, Any]:
    """Return the `top` tokens with their probabilities (positions, top), and rank and probability of the chosen token.

    `chosen` is None where the text ends. `logprob` is the sum of the log-probabilities of all chosen tokens.
    """
    spell = speller(reading)
    if reading.ids is None:
        raise ConfigError(f"{reading.name} does not predict tokens", "choose a language model or a translator")
    check_length(reading)
    logits, _ = reading.look()
    rows = widen(by_row(logits))  # (R, V)
    tokens, probabilities = top_tokens(rows, spell, top)
    logprobs = rows.log_softmax(-1)
    chosen: list[dict[str, Any] | None] = [None] * len(rows)
    total = 0.0
    for r, token in enumerate(reading.ids):
        if token is not None:
            logprob = float(logprobs[r, token])
            rank = 1 + int((rows[r] > rows[r, token]).sum())
            chosen[r] = {"token": spell([token])[0], "rank": rank, "probability": float(torch.tensor(logprob).exp())}
            total += logprob
    return {
        "title": f"Alternatives of {reading.name}",
        "positions": reading.target,
        "outputs": reading.outputs,
        "tokens": tokens,
        "probabilities": probabilities,
        "chosen": chosen,
        "logprob": total,
    }
