"""clearformer evaluate"""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, columns, corpus_path
from clearformer.errors import DataError


@app.command()
def evaluate(
    model: Model,
    pairs: Annotated[str, typer.Option(help="Test pairs: a TSV or JSONL file, or two files, a,b.")],
    refs: Annotated[list[Path], typer.Option("--refs", help="A further file of references, a line each.")] = [],  # noqa: B006
    column: Annotated[str, typer.Option("--columns", help="Which two columns: 0,1 or names, en,de.")] = "0,1",
    beam: Annotated[int | None, typer.Option(min=1, help="Branches kept; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="α of len^α.")] = None,
    tokenize: Annotated[str | None, typer.Option(help="sacrebleu's tokenizer: 13a, none, char, intl, zh.")] = None,
    lowercase: Annotated[bool | None, typer.Option("--lowercase", help="Score without regard to case.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the translations here, a line each.")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a translator on pairs: BLEU and chrF, with sacrebleu's signatures.

    clearformer evaluate --model runs/m30k --pairs test.tsv

    clearformer evaluate --model runs/m30k --pairs test.en,test.de --refs test2.de --json
    """
    from json import dumps

    from rich.progress import Progress

    from clearformer.data.sources import read_lines, read_pairs, require_file
    from clearformer.evaluation.evaluate import evaluate as measure
    from clearformer.launch import plain_reference
    from clearformer.load import find, load
    from clearformer.recipe import Recipe
    from clearformer.training.journal import console

    recipe = Recipe.read(find(model) / "recipe.toml")
    examples = list(read_pairs(corpus_path(pairs), columns(column)))
    references = [[plain_reference(example.target, recipe) for example in examples]]
    for path in refs:
        require_file(path)
        references.append([plain_reference(line, recipe) for line in read_lines(path)])
        if len(references[-1]) != len(examples):
            raise DataError(
                f"{path} has {len(references[-1]):,} lines for {len(examples):,} pairs", "give one line a pair"
            )
    wanted = {"tokenize": tokenize, "lowercase": lowercase}
    config = recipe.evaluate.changed(**{k: v for k, v in wanted.items() if v is not None})
    search = {k: v for k, v in {"beam": beam, "length_penalty": length_penalty}.items() if v is not None}
    translator = load(model, device)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("translating", total=len(examples))
        sources = [example.source for example in examples]
        result = measure(translator, sources, references, config, lambda n: bar.advance(task, n), **search)
    translations = result.pop("translations")
    if out is not None:
        out.write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    if json:
        print(dumps(result))
    else:
        print(f"BLEU {result['bleu']:.2f}   {result['signatures']['bleu']}")
        print(f"chrF {result['chrf']:.2f}   {result['signatures']['chrf']}")
        print(f"{result['sentences']:,} sentences")
