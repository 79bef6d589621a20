"""What a training is for. A Task owns everything about one kind of data, such as pairs.

    flag                  the option that names its data: --pairs
    data, objective       its tables of a recipe
    plan, plan_finetune   zero configuration: a recipe chosen from the data
    learn, settle, store  files -> vocabulary, final recipe, examples on disk
    split, score          batches to train on, and the metrics that judge them
    handle, evaluate      what `load` gives, and how it is tested on other files

TASKS has them by name, which is also the `kind` of their [objective]. A task from outside the package joins by
`register("task", name, class)`: examples/own_task.py.

The flags are here, too. The command line makes its options from them, and Python takes the same names as keywords:

    collect({"pairs": "a.tsv", "valid": "b.tsv"})  ->  Given(PAIRS, {"train": "a.tsv", "valid": "b.tsv"}, {})

Nothing heavy is imported here: `--help` must be instant.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearformer.errors import ConfigError, suggest
from clearformer.registry import Table

if TYPE_CHECKING:
    from clearformer.tasks.task import Task

TASKS: "Table[type[Task]]" = Table(
    "task",
    {
        "translation": "clearformer.tasks.translation:TranslationTask",
        "causal-lm": "clearformer.tasks.causal_lm:CausalLMTask",
        "prefix-lm": "clearformer.tasks.prefix_lm:PrefixLMTask",
        "masked-lm": "clearformer.tasks.masked_lm:MaskedLMTask",
        "span-corruption": "clearformer.tasks.span_corruption:SpanCorruptionTask",
        "sentence-score": "clearformer.tasks.sentence_score:SentenceScoreTask",
        "classification": "clearformer.tasks.classification:ClassificationTask",
        "token-classification": "clearformer.tasks.tagging:TaggingTask",
        "image-classification": "clearformer.tasks.image_classification:ImageClassificationTask",
        "reconstruction": "clearformer.tasks.reconstruction:ReconstructionTask",
        "ctc": "clearformer.tasks.speech:SpeechTask",
    },
)


def task_named(objective: str) -> "type[Task]":
    """The task of an objective: its own name, or the one that an objective of the user's says it is for."""
    from clearformer.objectives import OBJECTIVES

    if objective in TASKS.names():
        return TASKS.resolve(objective)
    return TASKS.resolve(str(getattr(OBJECTIVES.resolve(objective), "task", "translation")))


def objective_named(kind: str) -> type[Any]:
    """The class of an objective."""
    from clearformer.objectives import OBJECTIVES

    return TASKS.resolve(kind).objective if kind in TASKS.names() else OBJECTIVES.resolve(kind)


def objective_names() -> list[str]:
    from clearformer.objectives import OBJECTIVES

    return sorted({*TASKS.names(), *OBJECTIVES.names()})


@dataclass(frozen=True)
class Option:
    """An option beside a flag, such as --columns; `name` is its keyword in Python."""

    name: str
    metavar: str
    help: str
    parse: Callable[[str], Any] = str


@dataclass(frozen=True)
class Flag:
    """The option that names data of one kind. `parse` turns a word of the command line into what Python takes."""

    name: str
    metavar: str
    help: str
    task: str
    """Who chooses a recipe for such data; the recipe may be for another task with the same flag."""
    makes: str
    """What is trained on it, for messages: "a translator"."""
    example: str = "FILE"
    parse: Callable[[str], Any] = str
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Given:
    """Data that was named: by which flag, the files of each split, and the options beside it."""

    flag: Flag
    splits: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> Any:
        """What the flag itself named: to train on, or to evaluate on."""
        return self.splits["train"]


def one_or_two(text: str) -> str | tuple[str, str]:
    """One file, or two line-aligned ones joined by a comma."""
    parts = [text] if Path(text).exists() else text.split(",")
    if len(parts) > 2:
        raise ConfigError(f"{text} names {len(parts)} files", "give one, or two that are aligned line by line: a,b")
    return (parts[0], parts[1]) if len(parts) == 2 else text


def one_or_more(text: str) -> list[str]:
    """One file, or several joined by commas."""
    return [text] if Path(text).exists() else text.split(",")


def two_columns(text: str) -> tuple[int, int] | tuple[str, str]:
    """ "0,1" or "en,de"."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"--columns {text}: expected two columns", "for example --columns 0,1 or --columns en,de")
    left, right = parts
    return (int(left), int(right)) if left.isdecimal() and right.isdecimal() else (left, right)


def text_columns(text: str) -> int | str | tuple[int | str, int | str]:
    """ "0", "sentence", or two of them: "3,4"."""
    parts = [one_column(part.strip()) for part in text.split(",")]
    if len(parts) > 2 or "" in parts:
        raise ConfigError(f"--text-columns {text}: expected one column, or two", "for example 0, sentence, or 3,4")
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0]


def one_column(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


PAIRS = Flag(
    "pairs",
    "FILE[,FILE]",
    "Sentence pairs: a .tsv or .jsonl file, or two aligned files.",
    task="translation",
    makes="a translator",
    example="train.tsv",
    parse=one_or_two,
    options=(Option("columns", "A,B", "Columns of --pairs: two numbers from 0, or names such as en,de.", two_columns),),
)
TEXT = Flag(
    "text",
    "FILE[,FILE…]",
    "Running text: .txt or .jsonl files.",
    task="causal-lm",
    makes="a language model",
    example="book.txt",
    parse=one_or_more,
)
LABELS = Flag(
    "labels",
    "FILE",
    "Labelled texts, .tsv or .jsonl; labelled words, .conll or .jsonl.",
    task="classification",
    makes="a classifier",
    example="reviews.tsv",
    options=(
        Option(
            "text_columns",
            "A[,B]",
            "Column of the text in --labels, or of both texts of a pair: numbers from 0, or names.",
            text_columns,
        ),
        Option("label_column", "C", "Column of the label in --labels: number from 0, or name.", one_column),
    ),
)
IMAGES = Flag(
    "images",
    "FOLDER",
    "Images: a folder for each class; or an idx, .npz or .parquet file.",
    task="image-classification",
    makes="an image classifier",
    example="folder",
)
RECORDINGS = Flag(
    "recordings",
    "FILE",
    "WAV files and their transcripts: a .tsv file, or a folder for each word.",
    task="ctc",
    makes="a speech recogniser",
    example="train.tsv",
)
SHIPPED = (PAIRS, TEXT, LABELS, IMAGES, RECORDINGS)
SPLITS = {"valid": "Data to validate on; else some of the training data.", "test": "Data to test on at the end."}


def flags() -> dict[str, Flag]:
    """Every flag by name: the shipped ones and the flags of registered tasks, entry points included."""
    added = [TASKS.resolve(name).flag for name in TASKS.names() if name not in TASKS.shipped]
    return {flag.name: flag for flag in (*SHIPPED, *added)}


def data_names() -> set[str]:
    """Every keyword that names data or says how it is read."""
    return {*flags(), *SPLITS, *(option.name for flag in flags().values() for option in flag.options)}


def collect(data: Mapping[str, Any]) -> Given | None:
    """The data that keywords name: one flag, perhaps `valid` and `test`, and options of that flag. None if none is."""
    known = flags()
    given = {name: value for name, value in data.items() if value is not None}
    for name in given:
        if name not in data_names():
            raise ConfigError(f"`{name}` names no data", suggest(name, data_names()))
    named = [known[name] for name in given if name in known]
    if len(named) > 1:
        both = " and ".join(f"--{flag.name}" for flag in named)
        raise ConfigError(f"{both} are both given", f"give one of them; {each_makes(named)}")
    if not named:
        if alone := [name for name in given if name in SPLITS]:
            raise ConfigError(f"--{alone[0]} is given without data to train on", f"give {examples()}")
        return None
    flag = named[0]
    own = {option.name for option in flag.options}
    for name in given:
        if name not in (flag.name, *own, *SPLITS):
            others = [other.name for other in known.values() if name in {option.name for option in other.options}]
            raise ConfigError(
                f"{written(name)} goes with --{others[0]}, not with --{flag.name}", f"leave {written(name)} out"
            )
    splits = {"train": given[flag.name]} | {name: given[name] for name in SPLITS if name in given}
    return Given(flag, splits, {name: value for name, value in given.items() if name in own})


def written(name: str) -> str:
    """A keyword as the command line writes it: --label-column."""
    return f"--{name.replace('_', '-')}"


def examples() -> str:
    """ "--pairs train.tsv, --text book.txt or …" """
    *first, last = [f"--{flag.name} {flag.example}" for flag in flags().values()]
    return f"{', '.join(first)} or {last}"


def each_makes(some: list[Flag]) -> str:
    return ", ".join(f"--{flag.name} trains {flag.makes}" for flag in some)
