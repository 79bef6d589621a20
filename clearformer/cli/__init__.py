"""The command line: one file a verb, which parses, calls and prints. Only what --help needs is imported here."""

import errno
import os
import sys
import warnings
from importlib import import_module
from keyword import iskeyword
from typing import Any

import typer
from typer.core import TyperGroup

from clearformer.errors import ClearformerError, ConfigError, Interrupted, MachineError
from clearformer.memory import keep_freed_memory
from clearformer.version import __version__

VERBS = (
    *("train", "finetune", "translate", "generate", "score", "fill", "repair", "classify", "embed", "transcribe"),
    *("evaluate", "import", "export", "merge"),
    *("inspect", "neighbours", "compare", "plot", "doctor", "demo"),
)


class Verbs(TyperGroup):
    """Runs a verb. What a user can mend is one sentence, a hint and exit code 1; only our bugs show a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_note
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except ClearformerError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except Interrupted:  # everything is saved, and said
            raise typer.Exit(130) from None
        except KeyboardInterrupt:
            print("interrupted; what was written before is whole", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader has seen enough, as `head` does
            let_go()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.strerror is None:
                raise
            let_go()
            print(f"error: {blame(error)}", file=sys.stderr)
            raise typer.Exit(1) from None


def show_note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {message}", file=sys.stderr)


def let_go() -> None:
    """Stop minding output that cannot be written any more: Python would try again, and complain, as it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def blame(error: OSError) -> MachineError:
    """The system's complaint as a sentence. A full disk, a quota and a limit on file size come to the same."""
    what = f"{error.filename}: {error.strerror}" if error.filename else f"cannot write: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MachineError(what, "free some space; what was saved before is untouched")
    return MachineError(what, "check the path and its permissions")


app = typer.Typer(
    name="clearformer",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train, fine-tune, run and see through Transformers, on your own data.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(asked: bool) -> None:
    if asked:
        print(f"clearformer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=print_version, is_eager=True, help="Say the version."),
    plugin: list[str] = typer.Option(
        [], "--plugin", metavar="MODULE", help="Import a module of yours, so that it can register its classes."
    ),
) -> None:
    keep_freed_memory()
    for name in plugin:
        sys.path.insert(0, "")  # as `python -m` does: a plugin is looked for here first
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the plugin is there, and lacks something itself
            hint = "for own_model.py in this folder, write --plugin own_model"
            raise ConfigError(f"--plugin {name}: there is no such module", hint) from None


for verb in VERBS:
    import_module(f"clearformer.cli.{verb}_" if iskeyword(verb) else f"clearformer.cli.{verb}")


def main() -> None:
    app()
