"""Write claims.md, the ledger of the notes, from claims.toml.

python docs/claims.py             write claims.md
python docs/claims.py --stamp     first note which results the figures were drawn from, by their hashes

A figure {file.json#key} becomes the value in benchmarks/results, with as many digits as tell. `results` has the first
eight digits of the SHA-256 of each file: if a result changes, tests/test_claims.py asks to look at the verdict again.
"""

import json
import re
import sys
import tomllib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
NAMED = re.compile(r"\{([\w.-]+\.json)(?:#([^}]+))?\}")
SOURCES = {
    "handwritten": "Handwritten Transformer notes",
    "Stanford": "Stanford lectures 8 and 9",
    "slides": "Slides on Transformers and Vision Transformers",
    "course": "A deep-learning course",
    "StatQuest": "StatQuest on Transformers",
}
VERDICTS = ("holds", "holds only if", "not seen here", "is a slip", "open", "a fact")
HEAD = """# The ledger of the notes

The notes are the lecture notes that this project grew out of. This page has every item of them in order: the place,
what the notes have, the equation, the code, its test, a command, a figure, and a verdict that was reached here:

- **holds**: the code computes it, and tests or results bear it out;
- **holds only if**: with a condition, which is stated;
- **not seen here**: it was tried, or can be, and the claim was not borne out;
- **is a slip**: the notes are wrong; [errata.md](errata.md) has the correction and its test;
- **open**: not done yet, with the reason; **a fact**: nothing to run.

The test holds the code to what it should compute. Where the verdict rests on a training, the figure is what was
measured, and the test holds the experiment. `[name]` is the worked example of `clearformer notes`.

Places are lines (`l.`) of the recognised text, with the page, the slide or the date of the lecture. `RUN` stands for a
run folder of yours. A figure that is a link comes from a result in benchmarks/results; the digits after `@` are the
beginning of its SHA-256, and `tests/test_claims.py` compares them. Other figures are printed or drawn by the command;
the test runs `notes` and `inspect` and compares. The experiments behind some verdicts are in
[experiments.md](experiments.md) and [results.md](results.md).

This page is written by `python docs/claims.py` from [claims.toml](claims.toml).
"""


def read_items() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = tomllib.loads((DOCS / "claims.toml").read_text(encoding="utf-8"))["item"]
    return items


def hash_of(file: str) -> str:
    return sha256((RESULTS / file).read_bytes()).hexdigest()[:8]


def look_up(file: str, path: str) -> Any:
    value = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def linked(match: re.Match[str]) -> str:
    """Return a link to a result, with the value of a key. test_figures.py checks values without an exponent again."""
    file, path = match.groups()
    if path is None:
        return f"[{file.removesuffix('.json')}](../benchmarks/results/{file})"
    value = look_up(file, path)
    if value and abs(value) < 1e-4:
        return f"[{value:.1e}](../benchmarks/results/{file})"
    digits = str(value) if isinstance(value, int) else f"{value:.4f}".rstrip("0").rstrip(".")
    fragment = f"#{path}" if re.fullmatch(r"[\w.-]+", path) else ""
    return f"[{digits}](../benchmarks/results/{file}{fragment})"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def linked_symbol(place: str) -> str:
    """Return a link to FILE::SYMBOL, without the room of the package or the tests in its text."""
    path, _, symbol = place.partition("::")
    shown = path.removeprefix("clearformer/").removeprefix("tests/")
    return f"[{shown}::{symbol.replace('[', chr(92) + '[').replace(']', chr(92) + ']')}](../{path})" if path else ""


def row(number: int, item: dict[str, Any]) -> str:
    code, test = (linked_symbol(item.get(key, "")) for key in ("code", "test"))
    command = f"`{cell(item['command'])}`" if "command" in item else ""
    figure = NAMED.sub(linked, cell(item.get("figure", "")))
    if stamps := item.get("results"):
        figure += f" @{', @'.join(stamp.partition('@')[2] for stamp in stamps)}"
    note = f": {cell(item['note'])}" if "note" in item else ""
    _, _, place = item["place"].partition(" ")
    cells = [str(number), place, cell(item["claim"]), cell(item.get("equation", "")), code, test, command, figure]
    return f"| {' | '.join(cells)} | **{item['verdict']}**{note} |"


def page(items: list[dict[str, Any]]) -> str:
    """Return claims.md: the head, a table of counts, and a table for each of the five sources."""
    lines = [HEAD, f"| source | items | {' | '.join(VERDICTS)} |", f"|---|---|{'---|' * len(VERDICTS)}"]
    for source, title in [*SOURCES.items(), ("", "all")]:
        counts = Counter(item["verdict"] for item in items if item["place"].startswith(source))
        lines.append(f"| {title} | {counts.total()} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |")
    for source, title in SOURCES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| # | place | the notes | equation | code | test | command | figure | verdict |",
        ]
        lines += ["|---|---|---|---|---|---|---|---|---|"]
        lines += [row(n, item) for n, item in enumerate(items, start=1) if item["place"].startswith(f"{source} ")]
    return "\n".join(lines) + "\n"


def stamp() -> None:
    """Renew the hashes in claims.toml, line by line, so that the rest of the file stays as it is."""
    path = DOCS / "claims.toml"
    text = re.sub(r"([\w.-]+\.json)@\w+", lambda m: f"{m[1]}@{hash_of(m[1])}", path.read_text(encoding="utf-8"))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if "--stamp" in sys.argv[1:]:
        stamp()
    (DOCS / "claims.md").write_text(page(read_items()), encoding="utf-8")
