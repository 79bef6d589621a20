"""The command line. Each verb has a file here that parses its options, calls the Python function and prints the result.

--help imports no large libraries, and a verb is imported, and its options are built, only when it is run or listed.
"""

import errno
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from keyword import iskeyword
from signal import SIGINT
from typing import Any

import typer
from typer.core import TyperGroup

from clearformer.cli.options import write_introduction, write_parameters
from clearformer.errors import ClearformerError, ConfigError, Interrupted, MachineError, Paused
from clearformer.memory import collect_rarely, end_quickly, keep_freed_memory
from clearformer.toolchain import keep_compiled_code
from clearformer.training.interrupt import stoppable
from clearformer.version import __version__

GROUPS = {
    "Train": ("data", "plan", "train", "finetune", "evaluate", "compare", "sweep", "demo"),
    "Use": ("translate", "generate", "score", "fill", "repair", "follows", "classify", "embed", "transcribe", "serve"),
    "Look inside": ("studio", "inspect", "lens", "neighbours", "merges", "plot", "notes"),
    "Exchange": ("import", "export", "merge", "card"),
    "Machine": ("doctor", "bench", "verify"),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
HELP = """Train, fine-tune, use and inspect Transformers on your own data.

Examples:
  clearformer demo                                         # train on the bundled corpus
  clearformer translate "I am a good boy."                 # use the bundled translator
  clearformer train --pairs train.tsv --out runs/mine      # train a translator on your data
  clearformer evaluate --model runs/mine --pairs test.tsv  # measure BLEU and chrF
  clearformer generate --model runs/book --prompt "ROMEO:" # continue a prompt
  clearformer fill "The man ___ a cart"                    # use the bundled language model

`clearformer VERB --help` explains a verb and lists its options.
"""


class Commands(Mapping[str, Any]):
    """The command of each verb, built on first use: the options of all verbs take longer than most verbs need."""

    def __init__(self) -> None:
        self.built: dict[str, Any] = {}

    def __getitem__(self, verb: str) -> Any:
        if verb not in VERBS:
            raise KeyError(verb)
        if verb not in self.built:
            self.built[verb] = build_command(verb)
        return self.built[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


def build_command(verb: str) -> Any:
    """Import the module of a verb, which registers its function with `app`, and build the command with its options."""
    import_module(f"clearformer.cli.{verb}_" if iskeyword(verb) else f"clearformer.cli.{verb}")
    info = next(info for info in app.registered_commands if verb in (info.name, getattr(info.callback, "__name__", "")))
    return typer.main.get_command_from_info(
        info, pretty_exceptions_short=app.pretty_exceptions_short, rich_markup_mode=app.rich_markup_mode
    )


class Verbs(TyperGroup):
    """Runs a verb. A user error is printed as one sentence and a hint, with exit code 1; only bugs show a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": {}})
        self.commands: Any = Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, the verbs in groups, and the options."""
        write_introduction(self, ctx, formatter)
        width = max(map(len, VERBS))
        for group, verbs in GROUPS.items():
            with formatter.section(group):
                commands = ((verb, self.commands[verb].get_short_help_str(limit=100)) for verb in verbs)
                formatter.write_dl([(verb.ljust(width), summary) for verb, summary in commands])
        write_parameters(self.get_params(ctx), ctx, formatter, "Options")

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings(), stoppable():
                warnings.showwarning = print_note
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except ClearformerError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except Paused:
            raise typer.Exit(0) from None
        except Interrupted as ending:  # the run is saved, and the message is already printed
            raise typer.Exit(128 + ending.number) from None
        except KeyboardInterrupt as ending:
            print("interrupted; files written earlier are intact", file=sys.stderr)
            raise typer.Exit(128 + getattr(ending, "number", SIGINT)) from None
        except BrokenPipeError:  # the reader closed the pipe, as `head` does
            discard_output()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.strerror is None:
                raise
            discard_output()
            print(f"error: {machine_error(error)}", file=sys.stderr)
            raise typer.Exit(1) from None


def print_note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {message}", file=sys.stderr)


def discard_output() -> None:
    """Redirect broken output streams to /dev/null, because Python flushes them again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def machine_error(error: OSError) -> MachineError:
    """Convert an error of the operating system. A full disk, a quota and a limit on file sizes have the same hint."""
    message = f"{error.filename}: {error.strerror}" if error.filename else f"cannot write: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MachineError(message, "free some space; files saved earlier are intact")
    return MachineError(message, "check the path and its permissions")


app = typer.Typer(
    name="clearformer",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=HELP,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def print_version(is_given: bool) -> None:
    if is_given:
        print(f"clearformer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=print_version, is_eager=True, help="Show the version and exit."
    ),
    plugin: list[str] = typer.Option(
        [],
        "--plugin",
        metavar="MODULE",
        help="Import a Python module that registers your classes; repeatable.",
        show_default="none",
    ),
    verify: bool = typer.Option(
        False, "--verify", help="Compare every file of a run folder with its checksum when a model is opened."
    ),
) -> None:
    if verify:
        os.environ["CLEARFORMER_VERIFY"] = "1"  # also for processes that this one starts
    keep_freed_memory()
    collect_rarely()
    for name in plugin:
        sys.path.insert(0, "")  # like `python -m`: look in the current folder first
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the plugin exists, and one of its imports is missing
            hint = "to load my_model.py from this folder, use clearformer --plugin my_model VERB"
            raise ConfigError(f"--plugin {name}: there is no such module", hint) from None


def main() -> None:
    keep_compiled_code()
    try:
        app()
    finally:
        end_quickly()
