"""Score a model on data of its own kind."""

from typing import Any

from clearformer.errors import CheckpointError, ConfigError
from clearformer.loading.folder import task_of
from clearformer.tasks import collect, data_names, examples
from clearformer.verbs.load import open_packed
from clearformer.verbs.train import Name


def evaluate(model: Name, pairs: Any = None, refs: Any = (), *, device: str = "auto", **more: Any) -> dict[str, Any]:
    """The scores of a model on other files: pairs=, text=, labels=, images= or recordings=, as it was trained on.

    pairs        bleu, chrf, signatures, sentences, translations; takes refs, tokenize, lowercase, progress, and the
                 settings of [decode], such as beam=1
    text         loss (natural log, a token), perplexity, tokens
    labels       loss, accuracy, macro_f1, matthews, confusion, classes, examples; a regression: loss, pearson
    images       loss, accuracy, top5, macro_f1, matthews, confusion, classes, images; an autoencoder: error
    recordings   wer, cer, words, sentences
    """
    names = data_names()
    given = collect({"pairs": pairs, **{name: value for name, value in more.items() if name in names}})
    if given is None:
        raise ConfigError("there is nothing to evaluate on", f"give {examples()}")
    if len(given.splits) > 1:
        raise ConfigError("evaluate takes no valid= and no test=", f"name the files with {given.flag.name}=")
    options = {name: value for name, value in more.items() if name not in names} | ({"refs": refs} if refs else {})
    opened = open_packed(model, device)
    task = task_of(opened.recipe)
    if task.flag.name != given.flag.name:
        raise CheckpointError(
            f"{model} is {task.handle(opened).kind}: it is not evaluated on --{given.flag.name}",
            f"evaluate it on --{task.flag.name} {task.flag.example}",
        )
    return task.evaluate(opened, given, **options)
