"""clearformer evaluate"""

from pathlib import Path
from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import (
    Beam,
    ColumnPair,
    Device,
    Images,
    Json,
    LabelColumn,
    Labels,
    LengthPenalty,
    Model,
    Pairs,
    Text,
    TextColumns,
    columns,
    corpus,
    files,
    label_column,
    text_columns,
)


@app.command()
def evaluate(
    model: Model,
    pairs: Pairs = None,
    text: Text = None,
    labels: Labels = None,
    images: Images = None,
    recordings: Annotated[
        str | None, typer.Option(metavar="FILE", help="WAV files and their transcripts: a .tsv file, or folders.")
    ] = None,
    refs: Annotated[list[Path], typer.Option("--refs", metavar="FILE", help="More references; repeatable.")] = [],  # noqa: B006
    column: ColumnPair = "0,1",
    text_column: TextColumns = None,
    label: LabelColumn = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    tokenize: Annotated[
        str | None, typer.Option(metavar="NAME", help="sacrebleu's tokenizer: 13a, char, intl, none or zh.")
    ] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Score BLEU without regard to case.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the translations here, a line each.")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a model on pairs, text, labels, pictures or recordings.

    Pairs give BLEU and chrF, text perplexity, labelled texts, words or pictures accuracy and macro F1, or the error of
    what an autoencoder gives back, recordings the error rates of words and of letters.

    BLEU and chrF are sacrebleu's, with the signatures that make them comparable.

    \b
    clearformer evaluate --model runs/m30k --pairs test.tsv
    clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs more.de --json
    clearformer evaluate --model runs/shakespeare --text sonnets.txt
    clearformer evaluate --model runs/reviews --labels test.tsv
    clearformer evaluate --model runs/photos --images others/
    clearformer evaluate --model runs/digits --recordings test.tsv
    """
    from clearformer.errors import ConfigError
    from clearformer.training.journal import console
    from clearformer.verbs import evaluation

    if sum(given is not None for given in (pairs, text, labels, images, recordings)) != 1:
        raise ConfigError(
            "there must be either pairs or text or labels or images or recordings to evaluate on",
            "give --pairs test.tsv, --text book.txt, --labels test.tsv, --images folder or --recordings test.tsv",
        )
    if pairs is not None:
        wanted = {"beam": beam, "length_penalty": length_penalty}
        search = {name: value for name, value in wanted.items() if value is not None}
        scored = {"columns": columns(column), "tokenize": tokenize, "lowercase": lowercase, "device": device}
        tell(translate(model, corpus(pairs) or pairs, refs, out, **scored, **search), json)
        return
    with console.status("scoring"):
        if labels is not None:
            texts, place = text_columns(text_column), label_column(label)
            scores = evaluation.evaluate_labels(model, labels, text_columns=texts, label_column=place, device=device)
        elif images is not None:
            scores = evaluation.evaluate_images(model, images, device=device)
        elif recordings is not None:
            scores = evaluation.evaluate_speech(model, recordings, device=device)
        else:
            scores = evaluation.evaluate_text(model, files(text) or [], device=device)
    tell(scores, json)


def translate(model: str, pairs: Any, refs: list[Path], out: Path | None, **settings: Any) -> dict[str, Any]:
    """The scores of translations, which go to a file if one is named; a bar shows how far it has come."""
    from rich.progress import Progress

    from clearformer.checkpoint import write_text
    from clearformer.training.journal import console
    from clearformer.verbs import evaluation

    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("translating", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        result = evaluation.evaluate(model, pairs, refs, progress=show, **settings)
    translations = result.pop("translations")
    if out is not None:
        write_text(out, "".join(f"{line}\n" for line in translations))
    return result


def tell(scores: dict[str, Any], json: bool) -> None:
    """One JSON object, or a line for each score that people look at, and one for how much was scored."""
    from json import dumps

    if json:
        print(dumps(scores))
        return
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF")):
        if name in scores:
            print(f"{title} {scores[name]:.2f}   {scores['signatures'][name]}")
    for name in ("accuracy", "top5", "macro_f1", "matthews", "pearson", "wer", "cer", "perplexity", "error", "loss"):
        if name in scores:
            print(f"{name} {scores[name]:.4f}")
    for name in ("sentences", "words", "tokens", "examples", "images"):
        if name in scores:
            print(f"{scores[name]:,} {name}")
