"""Count what is kept, dropped, cut, split and skipped when data is read, with up to three examples of each.

tally.note("too_long", 17, "A very long text …")
tally.examples_of("line")      ["  too long: line 17 “A very long text …”"]
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from clearformer.wording import count

SHOWN = 3  # examples of each outcome
WIDTH = 60  # characters of an example

TooLong = Literal["drop", "cut", "split"]
Outcome = Literal["kept", "empty", "too_long", "unequal"]
TITLES = {
    "empty": "empty",
    "too_long": "too long",
    "unequal": "of unequal length",
    "cut": "cut",
    "split": "split",
    "skipped": "skipped",
}


@dataclass
class Examples:
    """The first examples of each outcome: the number of the row, and its text, shortened."""

    shown: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def note(self, outcome: str, number: int, text: str) -> None:
        """Remember an example, unless there are three with smaller numbers."""
        kept = self.shown.setdefault(outcome, [])
        if (len(kept) < SHOWN or number < kept[-1][0]) and all(number != other for other, _ in kept):
            self.shown[outcome] = sorted([*kept, (number, short(text))])[:SHOWN]

    def merge(self, other: "Examples", offset: int) -> None:
        """Add the examples of another part, which begins `offset` rows later."""
        for outcome, examples in other.shown.items():
            for number, text in examples:
                self.note(outcome, number + offset, text)

    def lines(self, unit: str = "row", first: int = 1) -> list[str]:
        """Return one line of text per outcome. `first` is the number of the first row, 2 after a header."""
        return [
            f"  {TITLES[outcome]}: "
            + ", ".join(f"{unit} {number + first - 1:,}" + (f" “{text}”" if text else "") for number, text in examples)
            for outcome, examples in sorted(self.shown.items(), key=lambda item: [*TITLES].index(item[0]))
        ]


def short(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text[: 4 * WIDTH].split())
    return line if len(line) <= WIDTH and len(text) <= 4 * WIDTH else f"{line[: WIDTH - 1].rstrip()}…"


@dataclass
class Tally:
    """The number of pairs with each outcome of a `Filter`, and examples of them."""

    kept: int = 0
    empty: int = 0
    too_long: int = 0
    unequal: int = 0
    cut: int = 0
    """Pairs among the kept ones that were cut."""
    split: int = 0
    """Pairs that were split. All counts above are of pairs after splitting."""
    added: int = 0
    """The number of pairs that splitting added."""
    examples: Examples = field(default_factory=Examples, compare=False)
    numbers: list[int] = field(default_factory=list, compare=False)
    """The numbers of the kept pairs that are being processed, from 1."""
    shortened: set[int] = field(default_factory=set, compare=False)
    """The numbers among them of pairs that were cut, which are counted once."""

    @property
    def total(self) -> int:
        """The number of pairs that were read."""
        return self.kept + self.empty + self.too_long + self.unequal - self.added

    def count(self, outcome: Outcome) -> None:
        setattr(self, outcome, getattr(self, outcome) + 1)

    def count_cut(self, number: int) -> None:
        self.cut += number not in self.shortened
        self.shortened.add(number)

    def next_block(self) -> None:
        """Forget the numbers of the pairs that have been processed."""
        self.numbers.clear()
        self.shortened.clear()

    def count_split(self, n_parts: int) -> None:
        self.split += 1
        self.added += n_parts - 1

    def add(self, other: "Tally") -> None:
        """Add the counts of another part of the corpus."""
        self.examples.merge(other.examples, self.total)
        for name in ("kept", "empty", "too_long", "unequal", "cut", "split", "added"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def describe(self) -> str:
        """Describe the counts: "kept 28,873 of 29,000 pairs (12 empty, 3 too long, 112 of unequal length)"."""
        dropped = f" ({self.empty:,} empty, {self.too_long:,} too long, {self.unequal:,} of unequal length)"
        total = self.total + self.added
        kept = f"kept {self.kept:,} of {count(total, 'pair')}"
        changed = [f"; {self.cut:,} cut"] * bool(self.cut)
        changed += [f"; {self.split:,} split into {self.split + self.added:,}"] * bool(self.split)
        return (kept + dropped if self.kept < total else kept) + "".join(changed)


@dataclass
class Skipped:
    """The blank rows of a table, which are skipped: their number, and the first locations."""

    n: int = 0
    where: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        self.n += 1
        if len(self.where) < SHOWN:
            self.where.append(where)

    def describe(self) -> Iterable[str]:
        """Return a line of text if there are any: "skipped 2 blank rows: a.tsv:3, a.tsv:7"."""
        more = ", …" if self.n > len(self.where) else ""
        return [f"skipped {count(self.n, 'blank row')}: {', '.join(self.where)}{more}"] if self.n else []
