"""How much longer a tokenizer.json can make a text: a chain of replacements in a small file could fill any memory.

A step that replaces patterns by n characters makes a text at most n + 1 times as long, and steps multiply. Special
tokens are added once. Published tokenizers stay far below the limits.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from clearformer.wording import count

MOST_GROWTH = 10_000
MOST_STEPS = 100
MOST_ADDED = 1_000  # special tokens around a text
MOST_GAPS = 100_000  # ids without a token, besides nine for each token
STEPS = ("normalizer", "pre_tokenizer", "decoder")
FORMS = {"NFD": 4, "NFKD": 18, "NFC": 3, "NFKC": 18, "BertNormalizer": 4, "Nmt": 1, "Precompiled": 18, "ByteLevel": 4}


def steps_of(step: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer, pre-tokenizer or decoder; sequences may contain sequences."""
    if isinstance(step, Mapping):
        inner = [part for key in ("normalizers", "pretokenizers", "decoders") for part in step.get(key) or ()]
        for part in inner:
            yield from steps_of(part)
        if not inner:
            yield step


def has_gaps(vocab: Mapping[str, int]) -> bool:
    """Whether ids go far beyond the number of tokens: the Rust library makes a list of all that are missing."""
    return any(not 0 <= number < 10 * len(vocab) + MOST_GAPS for number in vocab.values())


def refusal(content: Mapping[str, Any]) -> str | None:
    """Return why a tokenizer.json could fill the memory, or None."""
    model, added_tokens = content.get("model") or {}, content.get("added_tokens") or ()
    vocab: dict[str, int] = model["vocab"] if isinstance(model.get("vocab"), dict) else {}
    numbers = {**vocab, **{str(token.get("content")): token.get("id", 0) for token in added_tokens}}
    if has_gaps(dict.fromkeys(map(str, model.get("vocab") or ()), 0) | numbers):
        return "the number of a token is far beyond the size of the vocabulary"
    for kind in STEPS:
        growth = 1
        for n_steps, step in enumerate(steps_of(content.get(kind)), 1):
            growth *= FORMS.get(str(step.get("type")), 1)
            if step.get("type") in ("Replace", "Prepend"):
                growth *= len(str(step.get("content", step.get("prepend", "")))) + 1
            if growth > MOST_GROWTH or n_steps > MOST_STEPS:
                return f"its {kind.replace('_', '-')} can make a text more than {MOST_GROWTH:,} times as long"
    processor = content.get("post_processor") or {}
    for part in (processor, *(processor.get("processors") or ())):
        added = [entry for side in ("single", "pair") for entry in part.get(side) or ()]
        ids = sum(len(token.get("ids") or ()) for token in (part.get("special_tokens") or {}).values())
        if len(added) > MOST_ADDED or ids > MOST_ADDED:
            return f"it adds more than {count(MOST_ADDED, 'special token')} to a text"
    return None
