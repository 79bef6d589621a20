"""The command `clearformer lens`."""

from pathlib import Path
from typing import Annotated

import typer

from clearformer.cli import app
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Device, Json, model_option


@app.command(cls=Command)
def lens(
    name: Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view, from the list above, or `list`.")],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="Text, image file or recording; for `list`, a pattern.", show_default="none"
        ),
    ] = None,
    model: Annotated[str | None, model_option("Input", default="the bundled translator")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Translation of TEXT that a translator reads.",
            show_default="the model's translation",
            rich_help_panel="Input",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Layer to show, such as decoder.blocks.1.cross.",
            show_default="all",
            rich_help_panel="View",
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Text that activations are taken from, for `patching`; its length may differ.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = None,
    words: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Words to show, separated by spaces, for `vectors`.",
            show_default="the tokens of TEXT",
            rich_help_panel="Input",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Texts or pairs for `heads`, or labelled texts for `probe`.",
            show_default="none",
            rich_help_panel="Input",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of tokens listed at each position, or of neighbours.",
            show_default="5, or 10 neighbours",
            rich_help_panel="View",
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Width of beam search.", show_default="as trained", rich_help_panel="View"
        ),
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Index of the output to explain; −1 is the last.",
            show_default="all",
            rich_help_panel="View",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Steps of integrated gradients.", show_default="64", rich_help_panel="View"
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Attention head to walk through.", show_default="0", rich_help_panel="View"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=".html, .svg, .png or .json file to write.",
            show_default="VIEW.html",
            rich_help_panel="Output",
        ),
    ] = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Look inside a model at work on a text.

    Examples:
      clearformer lens list                                         # every activation with its shape
      clearformer lens list "decoder.*.pattern" --model runs/mine
      clearformer lens attention "Where is the station?"            # all layers and heads, as a page
      clearformer lens walk "I am a good boy."                      # token to word, step by step
      clearformer lens attention --model runs/mine "A man rides a bike." --out map.svg
      clearformer lens heads --texts test.tsv                       # mean importance of every head

    Views: attention (who attends to whom, in every layer and head of encoder, decoder and cross-attention),
    ctc (the spikes of a speech model over a recording),
    gates (gates and states of an RNN, GRU or LSTM by token),
    gradient-flow (gradient norms of the loss on a text by layer and kind of weight),
    histograms (weights and activations by layer on a text; without TEXT, also gradients, over a training),
    positions (similarities and norms of the position encoding, and whether a shift is a rotation),
    probe (what a linear probe of each layer learns from the labelled --texts, compared with shuffled labels),
    neighbours (words whose embeddings are most similar to a word or to a sum: "king - man + woman"),
    vectors (maps of the token embeddings of a text or of --words in two and three dimensions),
    logit-lens (what the model would predict after each layer),
    alternatives (the most probable tokens at each step, and the rank of the chosen one),
    beam-tree (the hypotheses that beam search keeps and drops),
    attribution (how much each input token contributes to each output: integrated gradients),
    logit-attribution (a logit as the sum of what each head and feed-forward network writes),
    walk (every step from token to word on the model's own numbers, printed too),
    flow (maximum flow from each input through all layers of attention),
    heads (how much each head matters, by switching it off),
    induction (heads of a language model that copy from earlier in a text),
    patching (where the difference between TEXT and --other is, by exchanging activations),
    rollout (product of the attention of all layers).
    `list` prints the names of all activations without running the model. --json prints the values of a view.
    """
    from clearformer.loading.folder import DEFAULT
    from clearformer.training.journal import console
    from clearformer.verbs.lens import list_activations, view

    model = model or DEFAULT
    if name == "list":
        listing = list_activations(model, text or "*")
        if json:
            print_json(listing)
            return
        width = max(map(len, listing["activations"]))
        for activation, shape in listing["activations"].items():
            print(f"{activation:<{width}}  {'×'.join(map(str, shape)) if shape else 'not reached'}")
        return
    out = out or (None if json else Path(f"{name}.html"))
    with console.status(f"computing {name}"):
        values = view(
            name,
            model,
            text,
            out,
            device=device,
            target=target,
            layer=layer,
            other=other,
            words=words,
            texts=texts,
            top=top,
            beam=beam,
            position=position,
            steps=steps,
            head=head,
        )
    if name == "walk" and not json:
        from clearformer.cli.walk import print_walk

        print_walk(values)
    print_json(values) if json else print(f"{out}: {values['title']}")
