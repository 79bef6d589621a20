"""Code used by all verbs: the layout of --help, common options, the options for data, and reading texts from stdin.

A verb that takes data is a DataCommand. It has one option for every flag in tasks/__init__.py, including the flags of
plugins, and receives the parsed values in `ctx.obj`.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter, Signature
from itertools import count
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from clearformer.errors import ConfigError, DataError, did_you_mean
from clearformer.synonyms import options_like
from clearformer.tasks import SPLIT_DEFAULTS, SPLITS, flags

MAX_LINE = 2**25  # bytes of a line of stdin: more than a tokenizer takes at once
NO_BREAK = str.maketrans({"-": "\N{NON-BREAKING HYPHEN}", " ": "\N{NO-BREAK SPACE}"})
BREAK = {ord(char): code for code, char in NO_BREAK.items()}

UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of it inside typer
MODEL_HELP = "Run folder, Hugging Face folder or bundled model."


def model_option(group: str, default: str | bool = False) -> Any:
    return typer.Option("--model", "-m", metavar="MODEL", help=MODEL_HELP, show_default=default, rich_help_panel=group)


Model = Annotated[str, model_option("Input")]
LanguageModel = Annotated[str | None, model_option("Input", "en-small")]
RecipeFile = Annotated[
    Path | None,
    typer.Argument(metavar="RECIPE", help="TOML file that describes the run.", show_default="chosen from the data"),
]
NewModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Preset, such as transformer-small, or architecture, such as gpt.",
        show_default="chosen from the data",
        rich_help_panel="Model and settings",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Run folder to write.",
        show_default="runs/<data>-<model>-<time>",
        rich_help_panel="Output",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="Override any other setting of the recipe; repeatable.",
        show_default="none",
        rich_help_panel="Model and settings",
    ),
]


def choice_option(name: str, metavar: str, help: str, default: str = "from the recipe", **bounds: Any) -> Any:
    return typer.Option(
        name, metavar=metavar, help=help, show_default=default, rich_help_panel="Model and settings", **bounds
    )


Steps = Annotated[int | None, choice_option("--steps", "N", "Number of optimiser steps.", min=1)]
Epochs = Annotated[
    float | None, choice_option("--epochs", "X", "Number of epochs instead of steps; may be a fraction.", "see --steps")
]
Rate = Annotated[float | None, choice_option("--lr", "X", "Peak learning rate.")]
BatchSize = Annotated[
    int | None,
    choice_option(
        "--batch-size",
        "N",
        "Size of a micro-batch, of which a step has one unless train.accumulation is set: tokens, padding included; "
        "images; or frames of sound.",
        min=1,
    ),
]
Seed = Annotated[int | None, choice_option("--seed", "N", "Seed of all random draws.", "0", min=0)]
RunPrecision = Annotated[
    str | None,
    choice_option(
        "--precision", "DTYPE", "Precision: float32, bfloat16 or float64.", "bfloat16 on CUDA, otherwise float32"
    ),
]
Balance = Annotated[
    bool,
    typer.Option(
        "--balance",
        help="Predict rare classes as readily as frequent ones, for --labels and --images.",
        rich_help_panel="Model and settings",
    ),
]
Exportable = Annotated[
    bool,
    typer.Option(
        "--exportable",
        help="Choose a form of the model that Hugging Face has, where the usual one has no counterpart.",
        rich_help_panel="Model and settings",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(
        "--beam",
        metavar="N",
        min=1,
        help="Number of hypotheses that beam search keeps; 1 means greedy search.",
        show_default="from the model, usually 5",
        rich_help_panel="Search",
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        metavar="ALPHA",
        help="Exponent α in log p / length^α; larger values favour longer translations.",
        show_default="from the model, usually 1",
        rich_help_panel="Search",
    ),
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Device to use: auto, cpu, cuda or mps.")]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="ENGINE", help="Engine of the search on a CPU: auto, torch, compiled or ctranslate2."
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision", metavar="DTYPE", help="Precision of the weights: float32, bfloat16 for a GPU, or int8 for a CPU."
    ),
]
RunDevice = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", help="Device to use: auto, cpu, cuda or mps.", rich_help_panel="Run"),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.", rich_help_panel="Run")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.", rich_help_panel="Output")]


class Command(TyperCommand):
    """A verb whose --help is plain text: summary, usage, examples, explanation, arguments, options in groups.

    The docstring of the verb has these paragraphs: the summary, the examples under the line `Examples:`, and any number
    of explanations. The group of an option is its `rich_help_panel`, and a `show_default` that is a string describes a
    default which is chosen at run time.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. The error for an unknown option suggests one by its meaning, then by its letters."""
        given = list(args)  # click removes what it has parsed
        try:
            return list(super().parse_args(ctx, args))
        except UsageError as error:
            if hasattr(error, "possibilities"):  # there is no such option
                known = {name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
                names = options_like(error.option_name, known) or (error.possibilities or ())[:1]
                error.message += f"\nhint: {did_you_mean(names)}" if names else ""
                error.possibilities = None
            elif error.message.startswith("Got unexpected extra argument"):
                known = {name for param in self.get_params(ctx) for name in param.opts}
                names = [f"--{word}" for word in given if f"--{word}" in known]
                error.message += f"\nhint: {did_you_mean(names)}" if names else ""
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_introduction(self, ctx, formatter)
        self.format_options(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)


def write_introduction(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the summary, the usage line, the examples and the explanation of a verb or of the whole program."""
    summary, examples, *explanation = command.help.split("\n\n")
    formatter.write_text(summary)
    formatter.write_paragraph()
    command.format_usage(ctx, formatter)
    with formatter.section("Examples"):
        for line in examples.splitlines()[1:]:
            formatter.write(f"  {line.strip()}\n")
    for paragraph in explanation:
        formatter.write_paragraph()
        formatter.write_text(without_breaks(paragraph, r"\S+-\S+"))
    allow_breaks(formatter)


def write_parameters(params: Iterable[Any], ctx: Any, formatter: Any, other: str = "Other options") -> None:
    """Write the arguments, then the options by group in order of first appearance, with descriptions aligned.

    Options without a group, such as --help, come last under the heading `other`.
    """
    groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    for param in params:
        if (record := param.get_help_record(ctx)) is None:  # hidden
            continue
        name, text = record
        if is_argument := param.param_type_name == "argument":
            name = param.metavar
        # typer puts a default given in words into parentheses: [default: (chosen from the data)].
        text = text.replace(f"default: ({param.show_default})", f"default: {param.show_default}")
        group = "Arguments" if is_argument else getattr(param, "rich_help_panel", None) or other
        groups.setdefault(group, []).append((name, text))
    groups[other] = groups.pop(other, [])
    width = max(len(name) for rows in groups.values() for name, _ in rows)
    longest = formatter.width - width - 6  # characters that fit on a line next to the names, less "[" and "]"
    for group, rows in groups.items():
        if rows:
            with formatter.section(group):
                texts = [without_breaks(text, rf"\[.{{1,{longest}}}\]$|\S+-\S+") for _, text in rows]
                formatter.write_dl([(name.ljust(width), text) for (name, _), text in zip(rows, texts)], col_max=width)
    allow_breaks(formatter)


def without_breaks(text: str, pattern: str) -> str:
    """Keep each match of the pattern on one line, such as `--top-k` or `[default: 5]`."""
    return re.sub(pattern, lambda match: match[0].translate(NO_BREAK), text)


def allow_breaks(formatter: Any) -> None:
    """Replace the non-breaking characters by ASCII after the text is wrapped, so that it can be copied."""
    formatter.buffer[:] = [part.translate(BREAK) for part in formatter.buffer]


class DataCommand(Command):
    """A verb that evaluates on data: it has --pairs, --text and the other data flags, with their options."""

    splits: ClassVar[Mapping[str, str]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments, then the data options, which depend on the plugins, then the other options."""
        params = super().get_params(ctx)
        first = next((i for i, param in enumerate(params) if param.param_type_name == "option"), len(params))
        return [*params[:first], *self.data_options(), *params[first:]]

    def data_options(self) -> list[Any]:
        """Build one option for each data flag, for each split, and for each option of a data flag."""
        known = list(flags().values())
        alternatives = {"recipe": "a recipe", "resume": "--resume", "hypotheses": "--hypotheses"}
        others = [text for name, text in alternatives.items() if any(param.name == name for param in self.params)]
        heading = f"Data ({' or '.join([', '.join(['one of these', *others[:-1]]), *others[-1:]])} is required)"
        rows = [(flag.name, flag.metavar, flag.help, False, heading) for flag in known] + [
            *((name, "FILE[,FILE]", text, SPLIT_DEFAULTS[name], "Data options") for name, text in self.splits.items()),
            *(
                (option.name, option.metavar, option.help, option.default, "Data options")
                for flag in known
                for option in flag.options
            ),
        ]
        options = {name: text_option(name, *row) for name, *row in rows}

        def data(**_: str | None) -> None: ...

        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=options[name]) for name in options
        ]
        data.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        app = typer.Typer(add_completion=False)
        app.command()(data)
        command: Any = typer.main.get_command(app)
        return list(command.params)

    def invoke(self, ctx: Any) -> Any:
        names = [str(option.name) for option in self.data_options()]
        ctx.obj = parse_data({name: ctx.params.pop(name, None) for name in names})
        return super().invoke(ctx)


def text_option(name: str, metavar: str, help: str, default: str | bool, group: str) -> Any:
    """Return the annotation of an option whose value is a string."""
    option = typer.Option(
        f"--{name.replace('_', '-')}", metavar=metavar, help=help, show_default=default, rich_help_panel=group
    )
    return Annotated[str | None, option]


class TrainingCommand(DataCommand):
    """A verb that trains on data: it also has --valid and --test."""

    splits = SPLITS


def parse_data(values: Mapping[str, str | None]) -> dict[str, Any]:
    """Parse the data options into arguments of the Python functions. --valid and --test are parsed like the data."""
    known = flags()
    given = {name: value for name, value in values.items() if value is not None}
    parsers: dict[str, Any] = {option.name: option.parse for flag in known.values() for option in flag.options}
    parsers |= {flag.name: flag.parse for flag in known.values()}
    chosen = next((known[name] for name in given if name in known), None)
    if chosen is not None:
        parsers |= {option.name: option.parse for option in chosen.options}
    parsers |= dict.fromkeys(SPLITS, str if chosen is None else chosen.parse)
    return {name: parsers[name](value) for name, value in given.items()}


def print_errors(errors: list[DataError]) -> bool:
    """Print an error for each file that could not be read, as `cat` does, and return whether there is any."""
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return bool(errors)


def read_inputs(arguments: list[str]) -> Iterator[list[str]]:
    """Yield the input texts in chunks: the arguments, or the lines that are available on stdin so far.

    When a line cannot be decoded, the lines before it are yielded first.
    """
    from clearformer.data.sources import decode_line

    if arguments:
        yield arguments
        return
    if sys.stdin is None:
        raise ConfigError("there is no input: stdin is closed", "give the texts as arguments")
    if sys.stdin.isatty():
        print("reading from the terminal: one text per line; Ctrl-D ends the input", file=sys.stderr)
    numbers = count(1)
    for lines in ready_lines(sys.stdin.buffer):
        chunk: list[str] = []
        try:
            chunk.extend(decode_line(line, "stdin", next(numbers)) for line in lines)
        except DataError:
            yield chunk
            raise
        yield chunk


def ready_lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, as many at a time as one read returns. A line of more than MAX_LINE is an error."""
    parts, size = list[bytes](), 0
    while data := stream.read1(1 << 15):  # type: ignore[attr-defined]
        lines, end, rest = data.rpartition(b"\n")
        if end:
            yield b"".join([*parts, lines]).split(b"\n")
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_LINE:
            raise DataError(f"stdin: a line of more than {MAX_LINE >> 20} MiB", "divide it into shorter lines")
    if size:
        yield [b"".join(parts)]
