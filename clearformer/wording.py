"""Grammar for messages: nouns that agree with a count, and lists of names.

count(0, "step")             0 steps              agree(1, "is", "are")         is
count(1, "class", "classes") 1 class              listed(["a", "b", "c"])       a, b and c
count(4096, "token")         4,096 tokens         listed(names, most=2)         a, b and 7 more
"""

from collections.abc import Iterable


def count(n: int, singular: str, plural: str | None = None) -> str:
    """Return the number, with thousands separated by commas, and the noun in the form that agrees with it."""
    return f"{n:,} {agree(n, singular, plural or singular + 's')}"


def agree(n: int, singular: str, plural: str) -> str:
    """Return the form of a word that agrees with `n`; English uses the plural for zero."""
    return singular if n == 1 else plural


def listed(names: Iterable[object], most: int | None = None) -> str:
    """List names in a sentence: `a`, `a and b`, `a, b and c`. Names beyond `most` are only counted."""
    words = [str(name) for name in names]
    if most is not None and len(words) > most:
        words[most:] = [f"{len(words) - most:,} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
