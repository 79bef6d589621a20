"""The command `clearformer doctor`."""

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json


@app.command(cls=Command)
def doctor(json: Json = False) -> None:
    """Check this machine: devices, threads, libraries and compiler.

    Examples:
      clearformer doctor
      clearformer doctor --json > machine.json   # to attach to a bug report

    Prints one line per fact: `ok`, or `note` with advice on speed or missing packages. Nothing is compiled or
    allocated, so it is safe to use while a model is training.
    """
    from clearformer.verbs.doctor import describe
    from clearformer.verbs.doctor import doctor as examine

    report = examine()
    print_json(report) if json else print("\n".join(describe(report)))
