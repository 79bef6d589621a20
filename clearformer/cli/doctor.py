"""clearformer doctor"""

from clearformer.cli import app
from clearformer.cli.options import Json


@app.command()
def doctor(json: Json = False) -> None:
    """Say what this machine has, and which fast paths are on.

    \b
    clearformer doctor
    """
    from json import dumps

    from clearformer.verbs.doctor import describe
    from clearformer.verbs.doctor import doctor as examine

    report = examine()
    print(dumps(report) if json else "\n".join(describe(report)))
