"""clearformer generate"""

from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.options import Device, Json, Model, incoming


@app.command()
def generate(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(metavar="PROMPT", help="Prompts; else lines of stdin.")] = None,
    prompt: Annotated[list[str], typer.Option("--prompt", metavar="TEXT", help="A prompt; repeatable.")] = [],  # noqa: B006
    max_new: Annotated[int, typer.Option(metavar="N", min=1, help="Longest continuation, in tokens.")] = 256,
    temperature: Annotated[
        float, typer.Option(metavar="T", min=0, help="0 always takes the likeliest; 1 is the model's own odds.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(metavar="K", min=0, help="Sample from the K likeliest; 0 is all.")] = 0,
    top_p: Annotated[
        float, typer.Option(metavar="P", min=0.01, max=1, help="Sample from the likeliest of mass P together.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="THETA", min=0.01, help="Above 1, what was said is said less.")
    ] = 1.0,
    stop: Annotated[list[str], typer.Option("--stop", metavar="TEXT", help="End before this text; repeatable.")] = [],  # noqa: B006
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Continuations of each prompt.")] = 1,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Makes sampling repeatable.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask: wrap each prompt by the model's chat template.")] = False,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Continue prompts, shown as they are written.

    An encoder–decoder, such as a translator or a T5, answers them instead.

    \b
    clearformer generate --model runs/shakespeare --prompt "ROMEO:"
    clearformer generate --model runs/shakespeare --temperature 0 --stop "." --max-new 40 "To be"
    clearformer generate --model runs/shakespeare --n 3 --seed 1 --json "To be"
    clearformer generate --model runs/smollm2 --chat "What is gravity?"
    clearformer generate --model runs/t5 --n 3 "translate English to German: The house is old."
    """
    from dataclasses import asdict
    from json import dumps

    from clearformer.verbs.generate import Generator
    from clearformer.verbs.load import load_for

    generator: Generator = load_for("generate", model, device)
    writer = generator.writer(chat)
    settings = {
        "max_new": max_new,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
    }
    rows, first = [], 0
    for chunk in incoming([*prompt, *(text or [])]):
        if n == 1 and not json:
            for i, one in enumerate(chunk):
                print(one if writer.continues else "", end="", flush=True)
                for piece in writer.stream(one, stop, None if seed is None else seed + first + i, **settings):
                    print(piece, end="", flush=True)
                print(flush=True)
        else:
            for one, continuations in zip(chunk, writer.generate(chunk, n, stop, seed, first, **settings)):
                for continuation in continuations:
                    rows.append({"prompt": one, **asdict(continuation)})
                    if not json:
                        print(f"{one if writer.continues else ''}{continuation.text}\n", flush=True)
        first += len(chunk)
    if json:
        print(dumps({"continuations": rows}, ensure_ascii=False))
