"""Tasks. Each Task holds everything that depends on one type of data, such as sentence pairs.

    flag                  the command-line option for its data, such as --pairs
    data, objective       the classes behind its [data] and [objective] tables
    plan, plan_finetune   choose a recipe from the data (zero configuration)
    learn, settle, store  turn files into a vocabulary, the final recipe and examples on disk
    split, score          give the batches of a split, and compute metrics on it
    handle, evaluate      wrap a trained model for inference, and compute its metrics on other files

TASKS maps names to tasks. A name is also the `kind` of the task's [objective]. Tasks from outside the package are added
with `register("task", name, class)`; see examples/own_task.py.

The flags are also defined here. The command line builds its options from them, and Python functions take the same
names as keywords:

    collect({"pairs": "a.tsv", "valid": "b.tsv"})  ->  Given(PAIRS, {"train": "a.tsv", "valid": "b.tsv"}, {})

Nothing heavy is imported here: `--help` must be instant.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearformer.errors import ConfigError, did_you_mean, suggest
from clearformer.registry import Table
from clearformer.synonyms import keywords_like
from clearformer.wording import listed

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
    """Return the task of an objective: the task of the same name or, for a registered objective, its `task`."""
    from clearformer.objectives import OBJECTIVES

    if objective in TASKS:
        return TASKS.resolve(objective)
    return TASKS.resolve(str(getattr(OBJECTIVES.resolve(objective), "task", "translation")))


def objective_named(kind: str) -> type[Any]:
    """Return the class of the objective `kind`."""
    from clearformer.objectives import OBJECTIVES

    return TASKS.resolve(kind).objective if kind in TASKS else OBJECTIVES.resolve(kind)


def is_objective(kind: str) -> bool:
    """Whether `objective_named` accepts the name."""
    from clearformer.objectives import OBJECTIVES

    return kind in TASKS or kind in OBJECTIVES


def objective_names() -> list[str]:
    from clearformer.objectives import OBJECTIVES

    return sorted({*TASKS.names(), *OBJECTIVES.names()})


@dataclass(frozen=True)
class Option:
    """An option that belongs to a flag, as --columns belongs to --pairs. `name` is its keyword in Python."""

    name: str
    metavar: str
    help: str
    parse: Callable[[str], Any] = str
    default: str = "none"
    """The default as --help shows it."""


@dataclass(frozen=True)
class Flag:
    """The command-line option for one type of data, such as --pairs. `parse` converts its text to a Python value."""

    name: str
    metavar: str
    help: str
    task: str
    """The task that chooses a recipe for such data; the recipe may be for another task with the same flag."""
    makes: str
    """The model trained on such data, as messages call it: "a translator"."""
    example: str = "FILE"
    parse: Callable[[str], Any] = str
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Given:
    """Data given by the user: the flag, the files of each split, and the options of the flag."""

    flag: Flag
    splits: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    """For each split that is a Python object, what it is: "a list of 2,000 pairs". Its files are temporary."""

    @property
    def files(self) -> Any:
        """The value of the flag itself: files to train on, or to evaluate on."""
        return self.splits["train"]


def one_or_two(text: str) -> str | tuple[str, str]:
    """Parse one file name, or two separated by a comma, whose files are aligned line by line."""
    parts = [text] if Path(text).exists() else text.split(",")
    if len(parts) > 2:
        raise ConfigError(
            f"{text}: expected one file or two, not {len(parts)}",
            "give one file, or two files aligned line by line and separated by a comma",
        )
    return (parts[0], parts[1]) if len(parts) == 2 else text


def one_or_more(text: str) -> list[Path]:
    """Parse one file name, or several separated by commas. They are paths, since a list of strings may be texts."""
    return list(map(Path, [text] if Path(text).exists() else text.split(",")))


def two_columns(text: str) -> tuple[int, int] | tuple[str, str]:
    """Parse two column numbers, such as "0,1", or two column names, such as "en,de"."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ConfigError(
            f"--columns {text}: expected two columns", "write, for example, --columns 0,1 or --columns en,de"
        )
    left, right = parts
    return (int(left), int(right)) if left.isdecimal() and right.isdecimal() else (left, right)


def text_columns(text: str) -> int | str | tuple[int | str, int | str]:
    """Parse one column or two, each a number or a name: "0", "sentence" or "3,4"."""
    parts = [one_column(part.strip()) for part in text.split(",")]
    if len(parts) > 2 or "" in parts:
        raise ConfigError(
            f"--text-columns {text}: expected one column or two",
            "write, for example, --text-columns 0 or --text-columns 3,4",
        )
    return (parts[0], parts[1]) if len(parts) == 2 else parts[0]


def one_column(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


PAIRS = Flag(
    "pairs",
    "FILE[,FILE]",
    "Sentence pairs: a .tsv, .csv, .jsonl, .parquet, .xlsx or .tmx file, or two files aligned line by line.",
    task="translation",
    makes="a translator",
    example="train.tsv",
    parse=one_or_two,
    options=(
        Option(
            "columns",
            "A,B",
            "Source and target columns of --pairs: numbers from 0, or names such as en,de.",
            two_columns,
            default="from the header, or 0,1",
        ),
    ),
)
TEXT = Flag(
    "text",
    "FILE[,FILE…]",
    "Text: .txt files, or .csv, .jsonl or .parquet files with a column of texts.",
    task="causal-lm",
    makes="a language model",
    example="book.txt",
    parse=one_or_more,
)
LABELS = Flag(
    "labels",
    "FILE",
    "Labelled texts (.tsv, .csv, .jsonl, .parquet, .xlsx) or labelled words (.conll, .jsonl).",
    task="classification",
    makes="a classifier",
    example="reviews.tsv",
    options=(
        Option(
            "text_columns",
            "A[,B]",
            "Text column of --labels, or the two columns of a text pair: numbers from 0, or names.",
            text_columns,
            default="from the header or JSON keys, or 0",
        ),
        Option(
            "label_column",
            "C",
            "Label column of --labels: a number from 0, or a name.",
            one_column,
            default="`label`, or 1; in .conll files, the last",
        ),
    ),
)
IMAGES = Flag(
    "images",
    "FOLDER",
    "Images: a folder with one subfolder per class; or an idx, .npz or .parquet file.",
    task="image-classification",
    makes="an image classifier",
    example="folder",
)
RECORDINGS = Flag(
    "recordings",
    "FILE",
    "Sound files with transcripts: a .tsv or .csv file, or a folder with one subfolder per word.",
    task="ctc",
    makes="a speech recogniser",
    example="train.tsv",
)
SHIPPED = (PAIRS, TEXT, LABELS, IMAGES, RECORDINGS)
SPLITS = {
    "valid": "Validation data, in the format of the training data.",
    "test": "Test data, for the evaluation at the end.",
}
RUN_NAMES = (
    *("steps", "epochs", "lr", "batch_size", "seed", "precision", "device", "model", "out", "resume"),
    *("balance", "exportable"),
)
"""The keywords of `train` and `finetune` that are no data."""
SPLIT_DEFAULTS = {"valid": "held out from the training data", "test": "none"}


def flags() -> dict[str, Flag]:
    """Return all flags by name: the shipped flags, and the flags of tasks added by `register` or entry points."""
    added = [TASKS.resolve(name).flag for name in TASKS.names() if name not in TASKS.shipped]
    return {flag.name: flag for flag in (*SHIPPED, *added)}


def data_names() -> set[str]:
    """Return all keywords that give data or say how it is read: flags, splits and options."""
    return {*flags(), *SPLITS, *(option.name for flag in flags().values() for option in flag.options)}


def collect(data: Mapping[str, Any]) -> Given | None:
    """Collect the data given by keywords: one flag, its options, `valid` and `test`. None if no data is given."""
    known = flags()
    given = {name: value for name, value in data.items() if value is not None}
    for name in given:
        if name not in data_names():
            keywords = {*data_names(), *RUN_NAMES}
            meant = keywords_like(name, keywords)
            hint = did_you_mean(meant) if meant else suggest(name, data_names())
            raise ConfigError(f"there is no data option `{name}`", hint)
    chosen = [known[name] for name in given if name in known]
    if len(chosen) > 1:
        names = listed(f"--{flag.name}" for flag in chosen)
        raise ConfigError(f"{names} cannot be combined", f"give only one; {each_makes(chosen)}")
    if not chosen:
        if splits := [name for name in given if name in SPLITS]:
            raise ConfigError(f"--{splits[0]} needs training data as well", f"add {examples()}")
        return None
    flag = chosen[0]
    options = {option.name for option in flag.options}
    for name in given:
        if name not in (flag.name, *options, *SPLITS):
            others = [other.name for other in known.values() if name in {option.name for option in other.options}]
            raise ConfigError(
                f"{written(name)} is an option for --{others[0]}, not for --{flag.name}", f"remove {written(name)}"
            )
    files = {"train": given[flag.name]} | {name: given[name] for name in SPLITS if name in given}
    return Given(flag, files, {name: value for name, value in given.items() if name in options})


def written(name: str) -> str:
    """Return a keyword as the command line writes it: --label-column for label_column."""
    return f"--{name.replace('_', '-')}"


def examples() -> str:
    """List an example of each flag: "--pairs train.tsv, --text book.txt or …"."""
    *first, last = [f"--{flag.name} {flag.example}" for flag in flags().values()]
    return f"{', '.join(first)} or {last}"


def each_makes(chosen: list[Flag]) -> str:
    return ", ".join(f"--{flag.name} trains {flag.makes}" for flag in chosen)
