"""The text of ids that follow other ids: one by one, as a model generates them, or all at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream

CONTEXT = 8  # tokens before a text that decide how it begins
JOINING = {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"}  # decoders that revise no earlier text


class TextStream:
    """Decodes ids one by one.

        stream.step(id)  ->  the new text, or None while a character lacks some of its bytes

    The steps join to the decoded text, except that wordpiece cannot remove a space afterwards: "don", " '", " t".
    """

    def __init__(self, rust: tokenizers.Tokenizer) -> None:
        self._rust, self._stream = rust, DecodeStream(skip_special_tokens=True)

    def step(self, token_id: int) -> str | None:
        text: str | None = self._stream.step(self._rust, token_id)
        return text


def joins(decoder: Mapping[str, Any] | None) -> bool:
    """Whether the text of ids is the beginning of the text of these ids and more; without a decoder, it is."""
    parts = [] if decoder is None else decoder.get("decoders", [decoder])
    return all(part.get("type") in JOINING for part in parts)


def continued(
    decode: Callable[[Sequence[Sequence[int]]], list[str]], before: Sequence[list[int]], ids: Sequence[Sequence[int]]
) -> list[str | None]:
    """Return the text of each list of ids after the ids before it, or None if it begins or ends inside a character."""
    texts = decode([*before, *([*context, *row] for context, row in zip(before, ids))])
    return [
        whole[len(head) :] if whole.startswith(head) and "\ufffd" not in whole else None
        for head, whole in zip(texts[: len(ids)], texts[len(ids) :])
    ]
