"""Options that several verbs share: models and data, and how text comes in.

A verb that takes data is a DataCommand: it has an option for each flag of tasks/__init__.py, those of plugins
included, and finds what was named in `ctx.obj`.
"""

import sys
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from itertools import count
from pathlib import Path
from typing import IO, Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from clearformer.errors import ConfigError, DataError
from clearformer.tasks import SPLITS, flags

Model = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="A run folder or the name of a bundled model.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="The run folder.  [default: runs/<data>-<model>-<time>]")
]
Set = Annotated[list[str], typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override a setting; repeatable.")]
Beam = Annotated[int | None, typer.Option("--beam", metavar="N", min=1, help="Branches kept; 1 is greedy search.")]
LengthPenalty = Annotated[
    float | None, typer.Option("--length-penalty", metavar="ALPHA", help="More of it favours longer translations.")
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


class DataCommand(TyperCommand):
    """A verb that tests on data: --pairs, --text and so on, each with its own options."""

    splits: ClassVar[Mapping[str, str]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        """Data comes first, after the arguments. Asked for at each call: a plugin may have brought a flag."""
        own = super().get_params(ctx)
        first = next((i for i, param in enumerate(own) if param.param_type_name == "option"), len(own))
        return [*own[:first], *self.data_options(), *own[first:]]

    def data_options(self) -> list[Any]:
        """One for each flag, split and option beside a flag, made by typer as any other."""
        every = list(flags().values())
        named = [(flag.name, flag.metavar, flag.help) for flag in every]
        splits = [(split, "FILE[,FILE]", help) for split, help in self.splits.items()]
        beside = [(option.name, option.metavar, option.help) for flag in every for option in flag.options]

        def data(**_: str | None) -> None: ...

        options = {name: str_option(name, metavar, help) for name, metavar, help in (*named, *splits, *beside)}
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=options[name]) for name in options
        ]
        data.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        made = typer.Typer(add_completion=False)
        made.command()(data)
        command: Any = typer.main.get_command(made)
        return list(command.params)

    def invoke(self, ctx: Any) -> Any:
        names = [str(option.name) for option in self.data_options()]
        ctx.obj = parse_data({name: ctx.params.pop(name, None) for name in names})
        return super().invoke(ctx)


def str_option(name: str, metavar: str, help: str) -> Any:
    return Annotated[str | None, typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=help)]


class TrainingCommand(DataCommand):
    """A verb that trains on data: --valid and --test besides."""

    splits = SPLITS


def parse_data(words: Mapping[str, str | None]) -> dict[str, Any]:
    """What the options say, as the verbs take it in Python. Files of a split are named as the training data is."""
    known = flags()
    given = {name: word for name, word in words.items() if word is not None}
    readers: dict[str, Any] = {option.name: option.parse for flag in known.values() for option in flag.options}
    readers |= {flag.name: flag.parse for flag in known.values()}
    chosen = next((known[name] for name in given if name in known), None)
    if chosen is not None:
        readers |= {option.name: option.parse for option in chosen.options}
    readers |= dict.fromkeys(SPLITS, str if chosen is None else chosen.parse)
    return {name: readers[name](word) for name, word in given.items()}


def tell_broken(broken: list[DataError]) -> bool:
    """Name files that could not be read, where others could, as `cat` does; whether there are any."""
    for error in broken:
        print(f"error: {error}", file=sys.stderr)
    return bool(broken)


def incoming(arguments: list[str]) -> Iterator[list[str]]:
    """The texts to work on, in chunks: the arguments, or whatever lines stdin has ready, so that output streams.

    When a line cannot be decoded, those before it are handed out first.
    """
    from clearformer.data.sources import decode_line

    if arguments:
        yield arguments
        return
    if sys.stdin is None:
        raise ConfigError("there is nothing to read: stdin is closed", "give sentences as arguments")
    if sys.stdin.isatty():
        print("type a sentence a line; Ctrl-D ends", file=sys.stderr)
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
    """The lines of a stream, as many at a time as one read gives."""
    rest = b""
    while data := stream.read1(1 << 15):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]
