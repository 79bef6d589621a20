"""The command `clearformer generate`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.inputs import Column, Input, Results, deliver, open_inputs
from clearformer.cli.options import Command, Device, Engine, Json, LanguageModel, Precision

if TYPE_CHECKING:
    from clearformer.data.files.records import Records
    from clearformer.handles.writer import Writer


@app.command(cls=Command)
def generate(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="Prompts to continue or answer.", show_default="read stdin"),
    ] = None,
    model: LanguageModel = None,
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt", metavar="TEXT", help="A prompt; repeatable.", show_default="none", rich_help_panel="Input"
        ),
    ] = [],  # noqa: B006
    input: Input = None,
    column: Column = None,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Apply the chat template of the model to each prompt.", rich_help_panel="Input"),
    ] = False,
    max_new: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Maximum length of a continuation, in tokens.", rich_help_panel="Length"),
    ] = 256,
    stop: Annotated[
        list[str],
        typer.Option(
            "--stop",
            metavar="TEXT",
            help="Stop before this text is generated; repeatable.",
            show_default="none",
            rich_help_panel="Length",
        ),
    ] = [],  # noqa: B006
    temperature: Annotated[
        float,
        typer.Option(
            metavar="T",
            min=0,
            help="Temperature: 0 takes the most probable token, 1 samples from the unchanged probabilities.",
            rich_help_panel="Sampling",
        ),
    ] = 0.8,
    top_k: Annotated[
        int,
        typer.Option(
            metavar="K",
            min=0,
            help="Sample from the K most probable tokens; 0 means all.",
            rich_help_panel="Sampling",
        ),
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P",
            min=0.01,
            max=1,
            help="Sample from the most probable tokens whose probabilities add up to P.",
            rich_help_panel="Sampling",
        ),
    ] = 1.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(
            metavar="THETA",
            min=0.01,
            help="Penalty for tokens that have occurred before; values above 1 discourage repetition.",
            rich_help_panel="Sampling",
        ),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Seed for repeatable samples.", show_default="random", rich_help_panel="Sampling"
        ),
    ] = None,
    n: Annotated[
        int,
        typer.Option("--n", metavar="N", min=1, help="Number of continuations per prompt.", rich_help_panel="Output"),
    ] = 1,
    out: Results = None,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
    json: Json = False,
) -> None:
    """Generate text from prompts.

    Examples:
      clearformer generate --n 3 --seed 1 --json "The man pulled"           # with the bundled model
      clearformer generate --model runs/shakespeare --prompt "ROMEO:"
      clearformer generate --model runs/shakespeare --temperature 0 --stop "." --max-new 40 "To be"
      clearformer generate --model runs/smollm2 --input prompts.csv --column prompt --out answers.jsonl
      clearformer generate --model runs/smollm2 --chat "What is gravity?"   # a chat model
      clearformer generate --model runs/t5 "translate English to German: The house is old."

    Prints each prompt and its continuation as it is generated. An encoder-decoder, such as a translator or a T5, prints
    only its output. --out adds the columns continuation, logprob and ended to the columns of the input.
    """
    from dataclasses import asdict

    from clearformer.loading.folder import LANGUAGE_MODEL
    from clearformer.threads import use_few_threads
    from clearformer.verbs.generate import Generator
    from clearformer.verbs.load import load_for
    from clearformer.verbs.rows import Job, Result

    prompts = [*prompt, *(text or [])]
    records = open_inputs("generate", prompts, input, column, out, "prompt")
    generator: Generator = load_for("generate", model or LANGUAGE_MODEL, device, engine, precision)
    writer = generator.writer(chat)
    if prompts:
        use_few_threads(writer.model, n * len(prompts))
    settings = {
        "max_new": max_new,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
    }
    if n == 1 and not json and out is None:
        print_streamed(writer, records, stop, seed, settings)
        return

    def run(texts: Sequence[tuple[str, ...]], first: int) -> list[list[Result]]:
        chunk = [one for (one,) in texts]
        return [
            [
                Result(
                    [one.text, one.logprob, one.ended],
                    [f"{start if writer.continues else ''}{one.text}", *([] if out else [""])],
                    {"prompt": start, **asdict(one)},
                )
                for one in continuations
            ]
            for start, continuations in zip(chunk, writer.generate(chunk, n, stop, seed, first, **settings))
        ]

    deliver(records, out, json, "continuations", Job("generate", ["continuation", "logprob", "ended"], run))


def print_streamed(
    writer: "Writer", records: "Records", stop: list[str], seed: int | None, settings: dict[str, Any]
) -> None:
    """Print each prompt and its continuation, token by token."""
    from clearformer.verbs.rows import counting

    with counting("generate", records.n_rows) as counted:
        for first, chunk in counted(records.chunks()):
            for i, (prompt,) in enumerate((record.texts for record in chunk), first):
                print(prompt if writer.continues else "", end="", flush=True)
                for part in writer.stream(prompt, stop, None if seed is None else seed + i, **settings):
                    print(part, end="", flush=True)
                print(flush=True)
