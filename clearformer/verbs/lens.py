"""lens: views of a model at work. Each has a function that computes its values and a function that draws them.

    view("attention", "runs/mine", "A man rides a bike.", out="map.html")
    view("heads", "runs/mine", texts="test.tsv")      numbers by name; the last line of a cell draws them

A view is a function in lens/ that returns numbers and names ready for JSON, with a `title`; plots/ draws them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch

from clearformer import plots
from clearformer.data.batch import batch_class
from clearformer.data.files.open import is_table
from clearformer.data.pairs import named_pair_columns, read_pairs
from clearformer.data.sources import evenly_spaced
from clearformer.data.text_sample import sample_texts
from clearformer.disk import write_text
from clearformer.errors import ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.handles.translator import Translator
from clearformer.lens.alternatives import alternatives
from clearformer.lens.attention_maps import attention_maps
from clearformer.lens.attribution import STEPS, attribution
from clearformer.lens.beam_tree import beam_tree
from clearformer.lens.ctc import ctc
from clearformer.lens.flow import flow_of_text, rollout_of_text
from clearformer.lens.gates import gates
from clearformer.lens.gradient_flow import gradient_flow
from clearformer.lens.heads import heads
from clearformer.lens.histograms import histograms, histograms_of_run
from clearformer.lens.induction import induction
from clearformer.lens.logit_attribution import logit_attribution
from clearformer.lens.logit_lens import logit_lens
from clearformer.lens.neighbours import neighbours
from clearformer.lens.patching import patching
from clearformer.lens.points import points
from clearformer.lens.positions import positions
from clearformer.lens.probe import TEXTS, probe
from clearformer.lens.reading import Input, Reading, read
from clearformer.lens.shapes import shapes
from clearformer.lens.vectors import vectors_of_text, vectors_of_words
from clearformer.lens.walk import walk
from clearformer.loading.folder import DEFAULT
from clearformer.loading.open import handle_of, open_model
from clearformer.models.build import build_model
from clearformer.plots.attribution import attribution_figures
from clearformer.plots.ctc import ctc_figures
from clearformer.plots.gates import gate_figures
from clearformer.plots.gradient_flow import gradient_figures
from clearformer.plots.grids import grid_figures
from clearformer.plots.histograms import histogram_figures
from clearformer.plots.model_positions import position_figures
from clearformer.plots.page import as_svg, write_page
from clearformer.plots.probe import probe_figures
from clearformer.plots.vectors import vector_figures
from clearformer.verbs.inspect import LENGTH, find_config

LONGEST = 100_000  # tokens of an example whose shapes are listed

Name = str | Path
Values = dict[str, Any]
Figures = dict[str, Callable[[Path], Path]]  # caption -> a function that draws to a file
FILES = ("html", "svg", "png", "json")
EXAMPLES = 64  # of a file, at most


@dataclass(frozen=True)
class Request:
    """What a view is asked for. A field that is None was not given."""

    model: Name | Handle = DEFAULT
    device: str = "cpu"
    text: Input | None = None
    target: str | None = None
    layer: str | None = None
    words: str | None = None
    texts: Name | None = None
    top: int | None = None
    beam: int | None = None
    position: int | None = None
    steps: int | None = None
    head: int | None = None

    other: str | None = None

    NAMES: ClassVar = (
        *("text", "target", "layer", "other", "words", "texts"),
        *("top", "beam", "position", "steps", "head"),
    )

    @property
    def given(self) -> set[str]:
        return {name for name in self.NAMES if getattr(self, name) is not None}

    @cached_property
    def handle(self) -> Handle:
        """The model with unpacked weights, so that gradients can be computed."""
        return self.model if isinstance(self.model, Handle) else handle_of(open_model(self.model, self.device))

    @cached_property
    def reading(self) -> Reading:
        assert self.text is not None, "the view needs a text"
        return read(self.handle, self.text, self.target)


@dataclass(frozen=True)
class Kind:
    """A kind of view: what it computes, how it is drawn (one figure for each caption), and the options it takes."""

    compute: Callable[[Request], Values]
    figures: Callable[[Values], Figures]
    needs: frozenset[str] = frozenset({"text"})
    takes: frozenset[str] = field(default=frozenset())
    example: str = '"A man rides a bike."'

    def check(self, name: str, given: set[str]) -> None:
        """Raise an error for an option that does not apply, or for a required option that is missing."""
        for option in Request.NAMES:
            flag = option.upper() if option == "text" else f"--{option}"  # the text is an argument
            if option in given - self.needs - self.takes:
                raise ConfigError(f"the view `{name}` does not take {flag}", f"omit {flag}")
            if option in self.needs - given:
                raise ConfigError(f"the view `{name}` needs {flag}", f"clearformer lens {name} {self.example}")


class View(Values):
    """The values of a view. `save` writes it as .html, .svg, .png or .json; a notebook shows its figure."""

    def __init__(self, values: Mapping[str, Any], figures: Figures) -> None:
        super().__init__(values)
        self.figures = figures

    def save(self, path: Name) -> Path:
        """Write the view: the values (.json), the first figure (.svg, .png), or a page with all figures (.html)."""
        path, kind = Path(path), file_kind(path)
        if kind == "json":
            write_text(path, json.dumps(self, ensure_ascii=False))
        elif kind == "html":
            figures = {caption: as_svg(draw) for caption, draw in self.figures.items()}
            write_page(self["title"], figures, self, path)
        else:
            next(iter(self.figures.values()))(path)
        return path

    def _repr_html_(self) -> str:
        return as_svg(next(iter(self.figures.values())))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"the view: {self['title']}")


def draw_attention(values: Values) -> Figures:
    """The chosen layer comes first: it is the figure of a .png file."""
    ordered = sorted(values["layers"], key=lambda layer: layer["name"] != values["layer"])

    def draw(layer: Values) -> Callable[[Path], Path]:
        title = f"{values['title']}, {layer['name']}"
        return lambda path: plots.plot_attention(layer["pattern"], layer["columns"], layer["rows"], path, title)

    return {layer["name"]: draw(layer) for layer in ordered}


def compute_vectors(request: Request) -> Values:
    if request.words is not None:
        return vectors_of_words(request.handle, request.words, request.layer)
    if request.text is None:
        raise ConfigError(
            "the view `vectors` needs TEXT or --words", 'clearformer lens vectors --words "cat dog horse"'
        )
    return vectors_of_text(request.handle, request.reading, request.layer)


def compute_histograms(request: Request) -> Values:
    if request.text is not None:
        return histograms(request.reading, request.layer)
    folder = request.model.path if isinstance(request.model, Handle) else request.model
    return histograms_of_run(Path(folder or request.handle.name), request.layer)


def one_figure(plot: Callable[[Values, Path], Path]) -> Callable[[Values], Figures]:
    """The figures of a view that has a single one."""
    return lambda values: {values["title"]: lambda path: plot(values, path)}


def compute_heads(request: Request) -> Values:
    """Of one text, or of at most 64 examples of a file: texts, or pairs for a translator."""
    if (request.text is None) == (request.texts is None):
        raise ConfigError("the view `heads` needs TEXT or --texts", "clearformer lens heads --texts test.tsv")
    if request.texts is None:
        return heads([request.reading])
    if request.target is not None:
        raise ConfigError("--target belongs to a single TEXT", "omit --target; a file of pairs has the translations")
    handle, path = request.handle, Path(request.texts)
    if isinstance(handle, Translator) and is_table(path):
        pairs = evenly_spaced([pair for pair in read_pairs(path, named_pair_columns(path)) if all(pair)], EXAMPLES)
        return heads(read(handle, pair.source, pair.target) for pair in pairs)
    return heads(read(handle, text) for text in sample_texts(path, None, EXAMPLES).texts)


def compute_patching(request: Request) -> Values:
    """A translator reads the same target after both texts: the given one, or the translation of the text."""
    assert request.text is not None
    assert request.other is not None
    target = request.target
    if target is None and isinstance(request.handle, Translator):
        target = request.handle.translate(str(request.text))
    return patching(*(read(request.handle, text, target) for text in (request.text, request.other)))


VIEWS: dict[str, Kind] = {
    "attention": Kind(
        lambda request: attention_maps(request.reading, request.layer),
        draw_attention,
        takes=frozenset({"target", "layer"}),
    ),
    "ctc": Kind(
        lambda request: ctc(request.handle, request.reading, "" if request.text is None else request.text),
        ctc_figures,
        example="--model runs/digits seven.wav",
    ),
    "gates": Kind(
        lambda request: gates(request.reading, request.layer), gate_figures, takes=frozenset({"target", "layer"})
    ),
    "gradient-flow": Kind(
        lambda request: gradient_flow(request.handle, request.reading), gradient_figures, takes=frozenset({"target"})
    ),
    "histograms": Kind(
        compute_histograms, histogram_figures, frozenset(), takes=frozenset({"text", "target", "layer"})
    ),
    "neighbours": Kind(
        lambda request: neighbours(request.handle, str(request.text), request.top or 10),
        one_figure(plots.plot_neighbours),
        takes=frozenset({"top"}),
        example='"king - man + woman"',
    ),
    "positions": Kind(lambda request: positions(request.handle), position_figures, frozenset()),
    "probe": Kind(
        lambda request: probe(request.handle, sample_texts(Path(request.texts or ""), None, TEXTS)),
        probe_figures,
        frozenset({"texts"}),
        example="--model runs/mine --texts labelled.tsv",
    ),
    "vectors": Kind(
        compute_vectors, vector_figures, frozenset(), takes=frozenset({"text", "target", "layer", "words"})
    ),
    "logit-lens": Kind(
        lambda request: logit_lens(request.reading, request.top or 5),
        one_figure(plots.plot_logit_lens),
        takes=frozenset({"target", "top"}),
    ),
    "alternatives": Kind(
        lambda request: alternatives(request.reading, request.top or 5),
        one_figure(plots.plot_alternatives),
        takes=frozenset({"target", "top"}),
    ),
    "beam-tree": Kind(
        lambda request: beam_tree(request.handle, str(request.text), request.beam),
        one_figure(plots.plot_beam_tree),
        takes=frozenset({"beam"}),
    ),
    "attribution": Kind(
        lambda request: attribution(request.reading, request.position, request.steps or STEPS),
        attribution_figures,
        takes=frozenset({"target", "position", "steps"}),
    ),
    "logit-attribution": Kind(
        lambda request: logit_attribution(request.reading, request.position),
        one_figure(plots.plot_logit_attribution),
        takes=frozenset({"target", "position"}),
    ),
    "walk": Kind(
        lambda request: walk(request.reading, request.layer, request.head or 0),
        one_figure(plots.plot_walk),
        takes=frozenset({"target", "layer", "head"}),
    ),
    "flow": Kind(
        lambda request: flow_of_text(request.reading, request.position),
        grid_figures,
        takes=frozenset({"target", "position"}),
    ),
    "heads": Kind(compute_heads, grid_figures, frozenset(), takes=frozenset({"text", "texts", "target"})),
    "induction": Kind(lambda request: induction(request.handle), grid_figures, frozenset()),
    "patching": Kind(
        compute_patching,
        grid_figures,
        frozenset({"text", "other"}),
        frozenset({"target"}),
        '"The chef pulled the rope." --other "The chef pooled the rope."',
    ),
    "rollout": Kind(
        lambda request: rollout_of_text(request.reading),
        grid_figures,
        takes=frozenset({"target"}),
    ),
}


def view(
    name: str,
    model: Name | Handle = DEFAULT,
    text: Input | None = None,
    out: Name | None = None,
    *,
    device: str = "cpu",
    **options: Any,
) -> View:
    """Compute a view of a model at work on a text (an image file, a recording), and write it to `out`, if given.

    `model` is a path or a handle. The pixels or samples of a file, as `open` of the handle returns them, take the place
    of its path. `target` is the translation that a translator reads, by default its own; `layer` chooses a layer by
    name; `words` are the words of a map of vectors, and `texts` is a file with labelled texts. `top` is the number of
    tokens listed at each position, or of neighbours; `beam` is the width of beam search, `position` the index of an
    output, `steps` the number of steps of an integral, `head` the index of an attention head, and `other` the text that
    activations are taken from.
    """
    if name not in VIEWS:
        raise ConfigError(f"there is no view called `{name}`", suggest(name, VIEWS))
    if unknown := options.keys() - set(Request.NAMES):
        raise ConfigError(f"a view has no option `{min(unknown)}`", suggest(min(unknown), Request.NAMES))
    if out is not None:
        file_kind(out)  # raises for an unsupported file type, before anything is computed
    return compute(name, Request(model, device, text=text, **options), out)


def compute(name: str, request: Request, out: Name | None = None) -> View:
    kind = VIEWS[name]
    kind.check(name, request.given)
    values = kind.compute(request)
    result = View(values, kind.figures(values))
    if out is not None:
        result.save(out)
    return result


def file_kind(path: Name) -> str:
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FILES:
        raise ConfigError(
            f"{path}: unsupported file type for a view", "use a name that ends in .html, .svg, .png or .json"
        )
    return kind


def list_activations(model: Name = DEFAULT, pattern: str = "*", length: int | None = None) -> Values:
    """Return the names and shapes of all activations that match a pattern. Nothing is loaded or computed.

    `length` is the number of tokens of the example, by default 32, or of pixels per side of an image.
    """
    config = find_config(model)
    length = (getattr(config, "size", None) or LENGTH) if length is None else length
    if not 1 <= length <= LONGEST:
        raise ConfigError(f"an example cannot have a length of {length:,}", f"choose 1 to {LONGEST:,}")
    with torch.device("meta"):
        network = build_model(config).eval()
        batch = batch_class(network).blank(1, length, getattr(config, "channels", 3))
    try:
        every = shapes(network, batch)
    except (RuntimeError, ValueError, IndexError):  # an image that is smaller than a kernel, for example
        raise ConfigError(f"{model} cannot read an example of length {length:,}", "omit the length") from None
    rows = {name: shape for name, shape in every.items() if fnmatchcase(name, pattern)}
    if not rows:
        raise ConfigError(f"no activation is called `{pattern}`", suggest(pattern, points(network)))
    return {"name": str(model), "length": length, "activations": rows}
