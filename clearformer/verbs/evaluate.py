"""evaluate: compute the metrics of a model on other data."""

from typing import Any

from clearformer.errors import CheckpointError, ConfigError
from clearformer.loading.folder import task_of
from clearformer.tasks import collect, data_names, examples
from clearformer.verbs.load import open_packed
from clearformer.verbs.train import Name


def evaluate(model: Name, pairs: Any = None, refs: Any = (), *, device: str = "auto", **more: Any) -> dict[str, Any]:
    """Return the metrics of a model on data of the kind that it was trained on. The entries are:

    pairs        bleu, chrf, signatures, sentences, translations; accepts refs, tokenize, lowercase, progress,
                 and the settings of [decode], such as beam=1
    text         loss (natural logarithm, per token), perplexity, tokens
    labels       loss, accuracy, macro_f1, matthews, confusion, classes, examples; for a regression: loss, pearson
    images       loss, accuracy, top5, macro_f1, matthews, confusion, classes, images; for an autoencoder: error
    recordings   wer, cer, words, sentences
    """
    names = data_names()
    given = collect({"pairs": pairs, **{name: value for name, value in more.items() if name in names}})
    if given is None:
        raise ConfigError("no data to evaluate on", f"give {examples()}")
    if len(given.splits) > 1:
        raise ConfigError("evaluate takes neither valid= nor test=", f"give only {given.flag.name}=")
    options = {name: value for name, value in more.items() if name not in names} | ({"refs": refs} if refs else {})
    opened = open_packed(model, device)
    task = task_of(opened.recipe)
    if task.flag.name != given.flag.name:
        raise CheckpointError(
            f"{model} is {task.handle(opened).kind}: it cannot be evaluated on --{given.flag.name}",
            f"clearformer evaluate --model {model} --{task.flag.name} {task.flag.example}",
        )
    return task.evaluate(opened, given, **options)
