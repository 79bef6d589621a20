"""clearformer translate"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Beam, Device, Json, LengthPenalty, incoming

if TYPE_CHECKING:
    from clearformer.handles.alignment import Alignment
    from clearformer.handles.translator import Translation


@app.command()
def translate(
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; else lines of stdin.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="A run folder or the name of a bundled model."),
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    n_best: Annotated[int, typer.Option("--n-best", metavar="N", min=1, help="How many candidates, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and log-probability before each.")] = False,
    align: Annotated[bool, typer.Option("--align", help="Put source-target piece numbers after each.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", min=0, help="Sample instead of searching; 1 is the model's own odds.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="K", min=0, help="Sample from the K likeliest pieces.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", min=0.01, max=1, help="Sample from the likeliest of mass P together.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Makes sampling repeatable, line by line.")] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Translate sentences, in order, as they come.

    Columns are divided by tabs. A blank line gives a blank line, or as many as --n-best.

    \b
    clearformer translate "I am a good boy."
    clearformer translate --model runs/m30k --n-best 3 --scores "A man is riding a bike."
    clearformer translate --model runs/m30k --top-k 10 --seed 1 "A man is riding a bike."
    clearformer translate --model runs/m30k < english.txt > german.txt
    """
    from json import dumps

    from clearformer.handles.translator import Translator
    from clearformer.loading.folder import DEFAULT
    from clearformer.verbs.load import load_for

    translator: Translator = load_for("translate", model or DEFAULT, device)
    wanted = {
        "beam": beam,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
    }
    settings: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    rows, first = [], 0
    for chunk in incoming(text or []):
        candidates = translator.candidates(chunk, n_best, seed=seed, first=first, **settings)
        first += len(chunk)
        for source, translation in ((source, one) for source, some in zip(chunk, candidates) for one in some):
            alignment = translator.align(source, translation.text) if align else None
            if json:
                rows.append(as_row(source, translation, alignment))
                continue
            before = [f"{translation.score:.4f}", f"{translation.logprob:.4f}"] if scores else []
            after = [] if alignment is None else [" ".join(f"{s}-{t}" for s, t in alignment.links())]
            print("\t".join([*before, translation.text, *after]), flush=True)
    if json:
        print(dumps({"translations": rows}, ensure_ascii=False))


def as_row(source: str, translation: "Translation", alignment: "Alignment | None") -> dict[str, Any]:
    row = {
        "source": source,
        "translation": translation.text,
        "score": translation.score,
        "logprob": translation.logprob,
    }
    if alignment is None:
        return row
    pieces = {"source_pieces": alignment.source, "target_pieces": alignment.target}
    return {**row, **pieces, "links": alignment.links()}
