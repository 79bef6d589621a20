"""Documents in parts: a text that is too long to hold, or to tokenise, at once.

    Unfinished("To be, or"), Unfinished(" not to"), " be"        one document: the last part is an ordinary string

    tokens of a document  =  tokens of its parts, one after the other

The second line decides where a document is cut: between two words or beside a mark, where the tokenizer gives the same
tokens with the cut as without it. The two are compared over CONTEXT characters on both sides, and again with a few
characters less before the cut: the end of a token must not depend on where the text begins. A tokenizer that never
gives the same tokens, such as one that puts a space before every text, has its documents whole, up to MAX_DOCUMENT.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.wording import count

MAX_DOCUMENT = 2**26  # characters, of up to 4 bytes
PART = 2**18  # characters of a part
CONTEXT = 256  # characters on both sides of a cut
SHIFTS = 8  # beginnings of the text before a cut
NEAR = 2**14  # characters before the end of a part in which it may be cut
TRIES = 16  # cuts of each kind that are compared
ANYWHERE = re.compile(r"(?<=\S)(?=\S)")
PLACES = (
    re.compile(r"(?<=\S)\s(?=\S)"),  # one white space between two words
    re.compile(r"(?<=\w)(?=[^\w\s])|(?<=[^\w\s])(?=\w)"),  # beside a mark, in scripts without spaces
    ANYWHERE,  # if tokens are characters
)


class Unfinished(str):
    """A part of a document that continues in the next text."""

    __slots__ = ()


def is_finished(text: str) -> bool:
    return not isinstance(text, Unfinished)


def in_parts(lines: Iterable[str]) -> Iterator[str]:
    """Yield the document that consists of these lines, in parts of about PART characters; nothing if it is blank."""
    before, is_begun = "", False
    for text in grouped(lines):
        if is_begun or before.strip():
            yield Unfinished(before)
            before, is_begun = text, True
        else:  # blank so far, and perhaps to its end
            before = limited(before + text)
    if is_begun or before.strip():
        yield before


def grouped(lines: Iterable[str]) -> Iterator[str]:
    """Join lines to texts of at least PART characters; the last may have fewer."""
    held = StringIO(newline="")
    for line in lines:
        held.write(line)
        if held.tell() >= PART:
            yield held.getvalue()
            held = StringIO(newline="")
    if rest := held.getvalue():
        yield rest


def document_lengths(texts: Iterable[str]) -> list[int]:
    """Return the number of characters of each document."""
    lengths, n = list[int](), 0
    for text in texts:
        n += len(text)
        if is_finished(text):
            lengths.append(n)
            n = 0
    return lengths


def between(texts: Iterable[str], lengths: Sequence[int], start: float, end: float) -> Iterator[str]:
    """Yield what lies between two fractions of the length of each document."""
    number, at = 0, 0
    for text in texts:
        first, last = int(start * lengths[number]), int(end * lengths[number])
        part = text[max(0, first - at) : max(0, last - at)]
        at += len(text)
        if part:
            yield part if at >= last else Unfinished(part)
        if is_finished(text):
            number, at = number + 1, 0


def joined(lines: Iterable[str]) -> str:
    """Return lines as one document, which has a limit: it is held in memory."""
    text = StringIO(newline="")
    for line in lines:
        text.write(line)
        if text.tell() > MAX_DOCUMENT:
            text.seek(0)
            raise too_long(text.read(40))
    return text.getvalue()


def limited(text: str) -> str:
    if len(text) > MAX_DOCUMENT:
        raise too_long(text[:40])
    return text


def too_long(start: str) -> DataError:
    return DataError(
        f"{start!r}… is a document of more than {count(MAX_DOCUMENT, 'character')}",
        "divide the text into documents: --set data.train.documents=paragraph, or line",
    )


def cut_for(tokenizer: Tokenizer, documents: Iterable[str], size: int = PART) -> Iterator[str]:
    """Divide documents of more than two parts of `size` characters where the tokenizer allows it."""
    rest, tried = "", 0
    for text in documents:
        rest, start = rest + text, 0
        while len(rest) > tried + 2 * size:
            if at := cut_place(tokenizer, rest, tried + size):
                yield Unfinished(rest[start:at])
                start = at
            tried = at or tried + size
        rest, tried = rest[start:], tried - start
        if is_finished(text):
            yield limited(rest)
            rest, tried = "", 0
        limited(rest)
    if rest:
        yield Unfinished(rest)


def cut_place(tokenizer: Tokenizer, text: str, end: int) -> int:
    """Return where a text may be cut, at most NEAR characters before `end`; 0 if nowhere."""
    start = max(1, end - NEAR)
    near = text[start - 1 : end + 1]
    for kind in PLACES:
        for match in deque(kind.finditer(near), TRIES):
            at = start - 1 + match.start()
            if is_apart(tokenizer, text[max(0, at - CONTEXT) : at], text[at : at + CONTEXT], kind is ANYWHERE):
                return at
    return 0


def is_apart(tokenizer: Tokenizer, left: str, right: str, by_character: bool) -> bool:
    """Whether two texts have the tokens of both together, and, `by_character`, one for each character."""
    befores = [left[n:] for n in range(min(SHIFTS, len(left)))]
    after, *rows = tokenizer.encode([right, *befores, *(before + right for before in befores)])
    whole = rows[len(befores) :]
    if by_character and len(whole[0]) != len(left) + len(right):
        return False
    return all(together == row + after for row, together in zip(rows, whole))
