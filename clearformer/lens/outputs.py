"""The rows of a model's logits on one text: what each row predicts, and which token the text has there.

p_t = softmax(logits_t)         one row per position, or a single row for a model that reads the text as a whole
"""

from typing import Any, NamedTuple

from torch import Tensor

from clearformer.errors import ConfigError, DataError
from clearformer.lens.reading import Reading, Spell
from clearformer.wording import count

MOST = 512  # tokens of a text that a view reads
WHOLE = "output"  # the name of the only row of a model that reads the text as a whole


class Output(NamedTuple):
    """A number that a model computes: a row of its logits and an id, a token or a class."""

    name: str
    row: int
    id: int


def speller(reading: Reading) -> Spell:
    """Return the function that names tokens or classes. Raises ConfigError if the model predicts neither."""
    if reading.spell is None:
        raise ConfigError(
            f"{reading.name} predicts neither tokens nor classes",
            "choose a language model, a translator or a classifier",
        )
    return reading.spell


def check_length(reading: Reading) -> None:
    if (n := max(len(reading.target), len(reading.source or []))) > MOST:
        raise DataError(f"the text has {count(n, 'token')}; the view reads at most {MOST}", "give a shorter text")


def by_row(logits: Tensor) -> Tensor:
    """Return the logits of the first text as rows: (1, T, V) -> (T, V), or (1, C) -> (1, C)."""
    return logits[0] if logits.dim() == 3 else logits[:1]


def row_names(reading: Reading, n_rows: int) -> list[str]:
    """Name the rows by the tokens that they predict."""
    return reading.outputs if n_rows == len(reading.outputs) else [WHOLE]


def top_tokens(rows: Tensor, spell: Spell, top: int) -> tuple[list[list[str]], list[list[float]]]:
    """Return the names and probabilities of the `top` most probable ids of each row of logits (R, V), best first."""
    best = rows.float().softmax(-1).topk(min(top, rows.size(-1)), dim=-1)
    return [spell(ids) for ids in best.indices.tolist()], best.values.tolist()


def predicted(reading: Reading, rows: Tensor) -> list[int]:
    """Return an id for each row of logits (R, V): the token that the text has there, else the most probable one."""
    best: list[int] = rows.argmax(-1).tolist()
    known: list[Any] = reading.ids or [None] * len(best)
    return [likely if token is None else token for token, likely in zip(known, best)]


def choose_outputs(reading: Reading, rows: Tensor, position: int | None) -> list[Output]:
    """Return every class of a classifier; else the token of each row, or of the row at `position`.

    A tagger has the class that it predicts for each word, or every class of the word at `position`.
    """
    spell = speller(reading)
    if reading.words is not None:
        return tagged(spell, reading.words, rows, position)
    if len(rows) == 1 and reading.ids is None:
        return [Output(name, 0, i) for i, name in enumerate(spell(list(range(rows.size(1)))))]
    ids, names = predicted(reading, rows), row_names(reading, len(rows))
    check_position(position, len(rows), "output")
    wanted = range(len(rows)) if position is None else [position]
    return [Output(spell([ids[r]])[0] if names[r] == "?" else names[r], r, ids[r]) for r in wanted]


def tagged(spell: Spell, words: list[tuple[str, int]], rows: Tensor, position: int | None) -> list[Output]:
    """Return the best class of each word, or every class of one word."""
    check_position(position, len(words), "word")
    names = spell(list(range(rows.size(1))))
    if position is not None:
        return [Output(name, words[position][1], k) for k, name in enumerate(names)]
    best = rows.argmax(-1).tolist()
    return [Output(f"{word}: {names[best[row]]}", row, best[row]) for word, row in words]


def check_position(position: int | None, n: int, kind: str) -> None:
    if position is not None and not -n <= position < n:
        raise ConfigError(f"there is no {kind} {position}", f"choose from 0 to {n - 1}")
