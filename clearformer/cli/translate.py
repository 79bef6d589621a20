"""The command `clearformer translate`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.inputs import Column, Input, Results, deliver, open_inputs
from clearformer.cli.options import Beam, Command, Device, Engine, Json, LengthPenalty, Precision, model_option

if TYPE_CHECKING:
    from clearformer.handles.translator import Translation


@app.command(cls=Command)
def translate(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences to translate.", show_default="read stdin")
    ] = None,
    model: Annotated[
        str | None,
        model_option("Input", "en-fr-small"),
    ] = None,
    input: Input = None,
    column: Column = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            min=0,
            help="Sample at this temperature instead of searching; 1 leaves the probabilities unchanged.",
            show_default="1 with --top-k or --top-p, otherwise search",
            rich_help_panel="Sampling",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=0,
            help="Sample from the K most probable tokens; 0 means all.",
            show_default="all",
            rich_help_panel="Sampling",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            min=0.01,
            max=1,
            help="Sample from the most probable tokens whose probabilities add up to P.",
            show_default="1",
            rich_help_panel="Sampling",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Seed for repeatable samples; the batch size does not affect them.",
            show_default="random",
            rich_help_panel="Sampling",
        ),
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            "--n-best",
            metavar="N",
            min=1,
            help="Number of translations per sentence, best first.",
            rich_help_panel="Output",
        ),
    ] = 1,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Print the score and log-probability before each translation.", rich_help_panel="Output"
        ),
    ] = False,
    align: Annotated[
        bool,
        typer.Option(
            "--align",
            help="Print the alignment after each translation, as source-target token numbers.",
            rich_help_panel="Output",
        ),
    ] = False,
    out: Results = None,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
    json: Json = False,
) -> None:
    """Translate sentences.

    Examples:
      clearformer translate "I am a good boy."                             # with the bundled model
      clearformer translate --model runs/m30k < english.txt > german.txt   # one sentence per line
      clearformer translate --input reviews.csv --column comment --out translated.csv
      clearformer translate --model runs/m30k --n-best 3 --scores "A man is riding a bike."
      clearformer translate --model runs/m30k --top-k 10 --seed 1 "A man is riding a bike."
      clearformer translate --model runs/m30k --engine compiled --beam 1 "A man is riding a bike."

    Prints one line per sentence, in order, as soon as it is translated. Columns are separated by tabs. A blank line is
    translated as a blank line, N times with --n-best N. Alignments count tokens from 0. --out adds the column
    translation, with --scores also score and logprob, to the columns of the input.

    --engine compiled compiles the search for single sentences, which takes about a minute. Later calls, with auto too,
    use the compiled steps from the cache. They are several times faster for small models.
    """
    from clearformer.handles.translator import Translator
    from clearformer.loading.folder import DEFAULT
    from clearformer.threads import use_few_threads
    from clearformer.verbs.load import load_for
    from clearformer.verbs.rows import Job, Result
    from clearformer.verbs.translate import as_row

    records = open_inputs("translate", text, input, column, out, "source")
    translator: Translator = load_for("translate", model or DEFAULT, device, engine, precision)
    options = {
        "beam": beam,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
    }
    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if text:
        use_few_threads(translator.model, len(text) * max(n_best, beam or translator.decode.beam))

    def result(source: str, translation: "Translation") -> Result:
        alignment = translator.align(source, translation.text) if align else None
        before = [translation.score, translation.logprob] if scores else []
        after = [] if alignment is None else [" ".join(f"{s}-{t}" for s, t in alignment.links())]
        line = "\t".join([*(f"{value:.4f}" for value in before), translation.text, *after])
        return Result([translation.text, *before, *after], [line], as_row(source, translation, alignment))

    def run(texts: Sequence[tuple[str, ...]], first: int) -> list[list[Result]]:
        sources = [source for (source,) in texts]
        candidates = translator.candidates(sources, n_best, seed=seed, first=first, **settings)
        return [[result(source, one) for one in some] for source, some in zip(sources, candidates)]

    columns = ["translation", *(["score", "logprob"] if scores else []), *(["alignment"] if align else [])]
    deliver(records, out, json, "translations", Job("translate", columns, run))
