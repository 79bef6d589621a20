"""Choose columns by their names: which row is a header, and which of its columns hold sources, texts and labels.

    pair_columns(["id", "en", "de"])              ("en", "de")
    label_columns(["id", "review", "sentiment"])  {"text": "review", "label": "sentiment"}

Names are compared in lower case. If no choice is certain, the result is empty, and the user chooses.
"""

import re
from collections.abc import Sequence
from typing import Any

PAIRS = [("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("original", "translation")]
PAIR_NAMES = {name for pair in PAIRS for name in pair} | {"sentence", "text"}
CODES = """
ar arabic bg bulgarian bn bengali cs czech da danish de german deu el greek en english eng es spanish spa et estonian
fa persian fi finnish fr french fra he hebrew hi hindi hin hu hungarian id indonesian it italian ita ja japanese jpn
ko korean lt lithuanian lv latvian nl dutch no norwegian pl polish pt portuguese por ro romanian ru russian rus sk
slovak sl slovenian sv swedish ta tamil te telugu th thai tr turkish uk ukrainian ur urdu vi vietnamese zh chinese zho
"""
LANGUAGES = set(CODES.split())
OTHERS = {"id", "idx", "index", "number", "score", "domain", "license", "notes", "url"}  # beside a pair, in a header

LABELS = ("label", "labels", "class", "category", "sentiment", "rating", "score")
TEXTS = ("text", "sentence", "review", "content", "comment", "document", "body")
TEXT_PAIRS = [("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2")]
SOUNDS = ("path", "file", "file_name", "filename", "wav", "audio", "sound")
TRANSCRIPTS = ("text", "transcript", "transcription", "sentence")


def header_of_pairs(row: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of source and target if the first row of a file is a header, otherwise None.

    It is one if its first two cells, or all its cells, are well-known names.
    """
    cells = [simple(cell) for cell in row]
    known = PAIR_NAMES | LANGUAGES
    if len({*row[:2]}) == 2 and known.issuperset(cells[:2]):
        return pair_columns(row) or (row[0], row[1])
    is_header = len({*cells}) == len(cells) and (known | OTHERS).issuperset(cells)
    return pair_columns(row) if is_header else None


def pair_columns(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of source and target: a well-known pair of names, or the only two languages."""
    by_name = {simple(name.rpartition(".")[2]): name for name in reversed(names)}
    for source, target in PAIRS:
        if source in by_name and target in by_name:
            return by_name[source], by_name[target]
    languages = [name for name in names if simple(name.rpartition(".")[2]) in LANGUAGES]
    if len(languages) > 2:
        languages = [name for name in languages if name != "id"]  # rather a number than Indonesian
    return (languages[0], languages[1]) if len(languages) == 2 else None


def simple(name: str) -> str:
    """Return the name of a language without its region: `en` for `EN-US` and `en_XX`."""
    return re.split("[-_]", name.strip().lower())[0]


def label_columns(names: Sequence[str], is_header: bool = False) -> dict[str, Any]:
    """Return the columns of the text, or of two texts, and of the label, as keys of [data.train]; {} if unknown.

    In a header, where `label` proves that it is one, the text may have any name: it is in the first other column.
    """
    by_name = {name.strip().lower(): name for name in reversed(names)}
    label = first_of(LABELS, by_name)
    if label is None or len(names) < 2:
        return {}
    for pair in TEXT_PAIRS:
        if by_name.keys() >= {*pair}:
            return {"text": tuple(by_name[name] for name in pair), "label": label}
    text = first_of(TEXTS, by_name)
    if text is None and is_header and label.strip().lower() == "label":
        text = next(name for name in names if name != label)
    return {} if text is None else {"text": text, "label": label}


def text_column(names: Sequence[str]) -> str | None:
    return first_of(TEXTS, {name.strip().lower(): name for name in reversed(names)})


def recording_columns(names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the sound file and of the transcript, as keys of [data.train]; {} if unknown."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    sound, text = first_of(SOUNDS, by_name), first_of(TRANSCRIPTS, by_name)
    return {} if sound is None or text is None else {"sound": sound, "text": text}


def first_of(wanted: Sequence[str], by_name: dict[str, str]) -> str | None:
    return next((by_name[name] for name in wanted if name in by_name), None)
