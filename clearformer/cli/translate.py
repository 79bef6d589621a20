"""clearformer translate"""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, incoming


@app.command()
def translate(
    text: Annotated[list[str] | None, typer.Argument(help="Sentences; lines of stdin if there are none.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A run folder or a bundled model.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Branches kept; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="α of len^α; more favours longer output.")] = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="How many candidates to show.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Show each candidate's score and log-probability.")] = False,
    align: Annotated[bool, typer.Option("--align", help="Show source-target piece pairs, by attention.")] = False,
    temperature: Annotated[float | None, typer.Option(min=0, help="Sample instead of searching.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Sample from the k likeliest words.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.01, max=1, help="Sample from the nucleus of mass p.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Translate sentences, in order, as they come.

    clearformer translate "I am a good boy."

    clearformer translate --model runs/m30k --n-best 3 --scores "A man is riding a bike."

    clearformer translate --model runs/m30k < english.txt > german.txt
    """
    from dataclasses import asdict
    from json import dumps

    from clearformer.load import DEFAULT, load

    translator = load(model or DEFAULT, device)
    wanted = {
        "beam": beam,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
    }
    settings: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    collected = []
    for chunk in incoming(text or []):
        for source, candidates in zip(chunk, translator.candidates(chunk, n_best, seed=seed, **settings)):
            for candidate in candidates:
                alignment = translator.align(source, candidate.text) if align else None
                links = " ".join(f"{s}-{t}" for s, t in alignment.links()) if alignment else None
                if json:
                    row = {"source": source, "translation": candidate.text, **asdict(candidate), "alignment": links}
                    collected.append({k: v for k, v in row.items() if v is not None and k not in ("text", "tokens")})
                    continue
                numbers = [f"{candidate.score:.4f}", f"{candidate.logprob:.4f}"] if scores else []
                print("\t".join([*numbers, candidate.text, *([links or ""] if align else [])]), flush=True)
    if json:
        print(dumps({"translations": collected}, ensure_ascii=False))
