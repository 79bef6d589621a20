"""The command `clearformer notes`."""

from typing import Annotated, Any

import typer

from clearformer.cli import app
from clearformer.cli.columns import in_columns
from clearformer.cli.json_object import print_json
from clearformer.cli.options import Command, Json
from clearformer.errors import ConfigError
from clearformer.wording import agree, count


@app.command(cls=Command)
def notes(
    example: Annotated[
        str | None,
        typer.Argument(metavar="EXAMPLE", help="Name of an example.", show_default="list the examples"),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Compute every example and check its figures.", rich_help_panel="Output"),
    ] = False,
    json: Json = False,
) -> None:
    """Compute the worked examples of the course notes.

    Examples:
      clearformer notes                      # list the examples
      clearformer notes apple                # compute one
      clearformer notes ball --json
      clearformer notes --all                # compute all, and check their figures

    An example prints the figure in the notes, the figure computed here, and the code that computes it. Where the notes
    are wrong, both figures and the reason are shown. The exit code is 1 if a figure is not as expected.
    """
    from clearformer.verbs.notes import contents
    from clearformer.verbs.notes import notes as compute

    if all_ and example is not None:
        raise ConfigError(f"both --all and the example `{example}` are given", "give one of them")
    if example is None and not all_:
        rows = contents()
        if json:
            print_json({"examples": rows})
            return
        print(in_columns([[row["name"], row["title"], row["place"]] for row in rows], n_left=3))
        return
    result = compute(example)
    if json:
        print_json(result)
    elif all_:
        print_summary(result["examples"])
    else:
        print_example(result["examples"][0])
    if not result["agrees"]:
        raise typer.Exit(1)


def print_example(example: dict[str, Any]) -> None:
    print(f"{example['title']} ({example['place']})\n")
    cells = [["", "notes", "here"]]
    cells += [[figure["what"], shown(figure["notes"]), shown(figure["here"])] for figure in example["figures"]]
    lines = in_columns(cells, n_left=3).splitlines()
    print(lines[0])
    for figure, line in zip(example["figures"], lines[1:]):
        print(line if figure["agrees"] else f"{line}  NOT AS EXPECTED")
        if figure["slip"]:
            print(f"    a slip in the notes: {figure['slip']}")
    print(f"\ncode: {', '.join(example['code'])}")


def print_summary(examples: list[dict[str, Any]]) -> None:
    """Print a line for each example, the figures that are not as expected, and the totals."""
    rows = []
    for example in examples:
        figures, slips = example["figures"], sum(bool(figure["slip"]) for figure in example["figures"])
        state = "ok" if example["agrees"] else "FAILED"
        rows.append([state, example["name"], count(len(figures), "figure"), count(slips, "slip") if slips else ""])
    print(in_columns(rows, n_left=4))
    every = [(example["name"], figure) for example in examples for figure in example["figures"]]
    wrong = [(name, figure) for name, figure in every if not figure["agrees"]]
    for name, figure in wrong:
        print(f"{name}: {figure['what']}: {shown(figure['here'])} here, {shown(figure['notes'])} in the notes")
    slips = sum(bool(figure["slip"]) for _, figure in every)
    print(
        f"{count(len(examples), 'example')}, {count(len(every), 'figure')}; {count(slips, 'figure')} of the notes "
        f"{agree(slips, 'is a slip', 'are slips')}; {count(len(wrong), 'figure')} not as expected"
    )


def shown(value: Any) -> str:
    """Format a value for people: six significant digits, lists in brackets, – for none."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
