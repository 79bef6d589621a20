"""The command line: one file a verb. Only what `--help` needs is imported here; torch waits until a verb runs."""

import sys
from importlib import import_module

import typer

from clearformer.errors import ClearformerError
from clearformer.version import __version__

app = typer.Typer(
    name="clearformer",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train, fine-tune, run and see through Transformers, on your own data.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERBS = ("train", "finetune", "translate", "evaluate", "inspect", "neighbours", "doctor")


def print_version(asked: bool) -> None:
    if asked:
        print(f"clearformer {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=print_version, is_eager=True, help="Say the version."),
    plugin: list[str] = typer.Option([], "--plugin", help="Import a module of yours first, so that it can register."),
) -> None:
    for name in plugin:
        sys.path.insert(0, "")
        import_module(name)


for verb in VERBS:
    import_module(f"clearformer.cli.{verb}")


def main() -> None:
    """Run a verb. A user's mistake is one sentence and exit code 1; Ctrl-C is 130; a closed pipe is silence."""
    try:
        app()
    except ClearformerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
