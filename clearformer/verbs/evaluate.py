"""evaluate: compute the metrics of a model on other data, or of output files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearformer.data.objects.staging import staged
from clearformer.data.sources import read_lines, require_file
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.evaluation.systems import DEFAULT, evaluate_systems
from clearformer.loading.folder import task_of
from clearformer.tasks import collect, data_names, examples, written
from clearformer.tasks.given_objects import as_files
from clearformer.tasks.task import Pretrained, Task
from clearformer.text.normalize import clean
from clearformer.verbs.load import open_packed
from clearformer.verbs.train import Name
from clearformer.wording import count

FOR_CLASSES = ("confusion", "errors", "calibrate")
"""The options of classifiers."""
FILES = "output files are evaluated with --hypotheses out.txt --refs ref.txt"


@staged()
def evaluate(
    model: Name | None = None,
    pairs: Any = None,
    refs: Any = (),
    *,
    hypotheses: Name | Sequence[Name] = (),
    device: str = "auto",
    **more: Any,
) -> dict[str, Any]:
    """Return the metrics of a model on data of the kind that it was trained on: a path, or an object as for `train`.

    The entries are:

    pairs        bleu, chrf, signatures, sentences, translations; accepts refs, tokenize, lowercase, progress,
                 and the settings of [decode], such as beam=1
    text         loss (natural logarithm, per token), perplexity, tokens
    labels       loss, balanced_loss, accuracy, macro_f1, matthews, confusion, per_class, ece, reliability, classes,
                 examples; for a regression: loss, pearson
    images       the same with top5, and images instead of examples; for an autoencoder: error
    recordings   wer, cer, words, sentences

    For classifiers, errors=N adds `errors`, the N most confident errors, and calibrate=True fits the temperature of the
    probabilities on the validation data of the run and saves it there. `confusion` is always returned.

    Without a model, `hypotheses` are one or more output files, evaluated against the files `refs`. The entries are
    bleu, chrf, ter, wer, signatures and sentences; metrics=["rouge"] chooses others. Several files give `systems`, a
    list with the metrics of each and p_values of its differences from the first.
    """
    files = [Path(path) for path in ([hypotheses] if isinstance(hypotheses, str | Path) else hypotheses)]
    names = data_names()
    options = {name: value for name, value in more.items() if name not in names}
    given = collect({"pairs": pairs, **{name: value for name, value in more.items() if name in names}})
    if files:
        if model is not None or given is not None:
            other = "--model" if model is not None else f"--{given.flag.name}" if given is not None else ""
            raise ConfigError(f"--hypotheses and {other} cannot be combined", f"remove one; {FILES}")
        return evaluate_files(files, refs, **options)
    if model is None:
        raise ConfigError("no model to evaluate", f"give --model RUN and {examples()}; {FILES}")
    if given is None:
        raise ConfigError("no data to evaluate on", f"give {examples()}")
    if len(given.splits) > 1:
        raise ConfigError("evaluate takes neither valid= nor test=", f"give only {given.flag.name}=")
    if "metrics" in options:
        raise ConfigError("--metrics needs --hypotheses: the metrics of a model depend on its data", "remove --metrics")
    options |= {"refs": refs} if refs else {}
    opened = open_packed(model, device)
    task = task_of(opened.recipe)
    if task.flag.name != given.flag.name:
        raise CheckpointError(
            f"{model} is {task.handle(opened).kind}: it cannot be evaluated on --{given.flag.name}",
            f"clearformer evaluate --model {model} --{task.flag.name} {task.flag.example}",
        )
    return task.evaluate(opened, as_files(given), **class_options(options, task, opened))


def class_options(options: Mapping[str, Any], task: type[Task], model: Pretrained) -> dict[str, Any]:
    """Return the options without unused options of classifiers; refuse the others for a model without classes."""
    for name in FOR_CLASSES:
        if options.get(name) and not (task.predicts_classes and model.classes):
            is_regression = task.predicts_classes and model.classes == []
            kind = "a regression model" if is_regression else task.handle(model).kind
            raise ConfigError(f"{written(name)} is for classifiers, but {model.name} is {kind}", f"remove --{name}")
    if options.get("errors", 0) < 0:
        raise ConfigError("errors is the number of errors to return, at least 0", "for example errors=20")
    unused = {"confusion", *(name for name in FOR_CLASSES if not options.get(name))}
    return {name: value for name, value in options.items() if name not in unused}


def evaluate_files(
    hypotheses: Sequence[Path],
    refs: Any,
    metrics: Sequence[str] = DEFAULT,
    tokenize: str = "13a",
    lowercase: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Compute metrics of output files. The lines of all files belong together."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"{written(name)} cannot be used with --hypotheses", f"remove {written(name)}")
    paths = [Path(path) for path in ([refs] if isinstance(refs, str | Path) else refs)]
    if not paths:
        raise ConfigError("--hypotheses needs references", "add --refs FILE, with one reference per line")
    systems = {str(path): read_output(path) for path in hypotheses}
    if len(systems) < len(hypotheses):
        raise ConfigError("a file is given twice with --hypotheses", "give each system once")
    references = {str(path): read_output(path) for path in paths}
    first, n = next((name, len(lines)) for name, lines in systems.items())
    for name, lines in (systems | references).items():
        if len(lines) != n:
            raise DataError(
                f"{name} has {count(len(lines), 'line')}, but {first} has {n:,}",
                "all files need one line per sentence, in the same order",
            )
    if n == 0:
        raise DataError(f"{first} is empty", "write one hypothesis per line")
    return evaluate_systems(systems, list(references.values()), metrics, tokenize, lowercase)


def read_output(path: Path) -> list[str]:
    """Read one text per line; a blank line is an empty text."""
    require_file(path)
    return [clean(line) for line in read_lines(path)]
