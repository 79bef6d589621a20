"""plot: the figures by name, each with a function that computes its values and a function that draws them.

SeedFigure         computed from a seed                                              claims/
ImageModelFigure   computed from a trained model and images                          lens/
EmbeddingsFigure   computed from a trained model and images or texts                 lens/embeddings.py
TextFigure         computed from a trained model and a text                          lens/attention.py
ResultFigure       computed from a trained classifier and labelled texts or images   evaluation/labels.py
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from clearformer import plots
from clearformer.claims import (
    agreement,
    batch_norm,
    complexity,
    consistency,
    convolutions,
    covariate_shift,
    depth,
    gradients,
    level_sets,
    optimizers,
    positions,
    rates,
    schedules,
    self_supervision,
    truncation,
)
from clearformer.data.image_sample import named_images, sample_images
from clearformer.data.images import ImageSource
from clearformer.data.labels import LabelSource
from clearformer.data.text_sample import sample_texts
from clearformer.errors import CheckpointError, ConfigError, DataError, suggest
from clearformer.handles.text_encoder import TextEncoder
from clearformer.lens import attention, embeddings, features, filters, grad_cam, rollout, shifts
from clearformer.lens.shown import shown
from clearformer.loading.folder import read_recipe, task_of
from clearformer.plots.style import suffix_of
from clearformer.verbs.evaluate import evaluate
from clearformer.verbs.load import load_encoder, load_image_model, open_packed

Name = str | Path
Values = dict[str, Any]
Compute = Callable[..., Values]
Draw = Callable[[Mapping[str, Any], Path | str], Path]


@dataclass(frozen=True)
class Options:
    """The options of all figures. `given` is the set of options that are not None."""

    seed: int
    device: str
    model: Name | None = None
    images: Sequence[Path] | None = None
    texts: Name | None = None
    text: str | None = None
    target: str | None = None
    layer: str | int | None = None

    NAMES: ClassVar = ("model", "images", "texts", "text", "target", "layer")

    @property
    def given(self) -> set[str]:
        return {name for name in self.NAMES if getattr(self, name) is not None}

    @property
    def source(self) -> Any:
        """The table [data.train] of the model's recipe, which says how to read files; None for an imported model."""
        return getattr(read_recipe(str(self.model)).data, "train", None)


class Figure(ABC):
    """A figure checks its options, computes its values from them, and draws the values."""

    example: ClassVar[str] = "--model runs/photos --images photos/"
    draw: Draw

    @abstractmethod
    def compute(self, options: Options) -> Values: ...

    def needs(self, given: set[str]) -> set[str]:
        """Return the required options."""
        return set()

    def takes(self) -> set[str]:
        """Return the options that may be given in addition to the required ones."""
        return set()

    def check(self, name: str, given: set[str]) -> None:
        """Raise an error for an option that does not apply, or for a required option that is missing."""
        needs = self.needs(given)
        for option in Options.NAMES:
            flag = "TEXT" if option == "text" else f"--{option}"  # the text is an argument
            if option in given - needs - self.takes():
                both = " with --texts" if option == "images" and "texts" in needs else ""
                raise ConfigError(f"the figure `{name}` does not take {flag}{both}", f"omit {flag}")
            if option in needs - given:
                raise ConfigError(f"the figure `{name}` needs {flag}", f"clearformer plot {name} {self.example}")


@dataclass(frozen=True)
class SeedFigure(Figure):
    """A figure that is computed from a seed, without a model."""

    look: Compute
    draw: Draw

    def compute(self, options: Options) -> Values:
        with one_thread():
            return self.look(options.seed)


@dataclass(frozen=True)
class ImageModelFigure(Figure):
    """A figure that is computed from an image model and up to `most` images, or from the model alone if `most` is 0."""

    look: Compute
    draw: Draw
    most: int = 0
    takes_layer: bool = False

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "images"} if self.most else {"model"}

    def takes(self) -> set[str]:
        return {"layer"} if self.takes_layer else set()

    def compute(self, options: Options) -> Values:
        handle = load_image_model(str(options.model), options.device)
        if not self.most:
            return self.look(handle)
        source = options.source or ImageSource(path=Path())
        sample = sample_images(options.images or (), source, handle.image, self.most)
        return self.look(handle, sample, options.layer) if self.takes_layer else self.look(handle, sample)


@dataclass(frozen=True)
class EmbeddingsFigure(ImageModelFigure):
    """A figure that is computed from an image model and images, or from a text encoder and texts."""

    example = f"{ImageModelFigure.example}; for a text model, --texts FILE instead of --images"

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "texts"} if "texts" in given else super().needs(given)

    def compute(self, options: Options) -> Values:
        if options.texts is None:
            return super().compute(options)
        encoder, source = load_encoder(str(options.model), options.device), options.source
        if not isinstance(encoder, TextEncoder):
            raise CheckpointError(f"{encoder.name} is an image model", "give --images instead of --texts")
        sample = sample_texts(Path(options.texts), source if isinstance(source, LabelSource) else None, self.most)
        return embeddings.place_texts(encoder, sample)


@dataclass(frozen=True)
class TextFigure(Figure):
    """A figure that is computed from a text model and a text, or a text and its translation."""

    look: Compute
    draw: Draw

    example = '--model runs/mine "A man rides a bike."'

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "text"}

    def takes(self) -> set[str]:
        return {"target", "layer"}

    def compute(self, options: Options) -> Values:
        return self.look(
            load_attentive(str(options.model), options.device), options.text, options.target, options.layer
        )


@dataclass(frozen=True)
class ResultFigure(Figure):
    """A figure of the results of a classifier on labelled texts or images."""

    look: Compute
    draw: Draw

    example = "--model runs/reviews --texts test.tsv; for images, --images FOLDER instead of --texts"

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "images"} if "images" in given else {"model", "texts"}

    def compute(self, options: Options) -> Values:
        return self.look(options)


def results(options: Options, errors: int = 0) -> Values:
    """Evaluate a classifier on the texts or images of the options."""
    if options.images is not None and len(options.images) > 1:
        raise ConfigError("this figure takes --images only once", "give one folder or file of labelled images")
    data = {"labels": options.texts} if options.images is None else {"images": options.images[0]}
    return evaluate(options.model, device=options.device, confusion=True, errors=errors, **data)


def confusion(options: Options) -> Values:
    metrics = results(options)
    title = f"{Path(str(options.model)).name}: accuracy {metrics['accuracy']:.3f}, macro F1 {metrics['macro_f1']:.3f}"
    return {"title": title, **{name: metrics[name] for name in ("classes", "confusion", "per_class")}}


def calibration(options: Options) -> Values:
    metrics = results(options)
    names = ("ece", "temperature", "ece_uncalibrated", "reliability")
    title = f"{Path(str(options.model)).name}: expected calibration error {metrics['ece']:.3f}"
    if "temperature" in metrics:
        title += f" ({metrics['ece_uncalibrated']:.3f} before calibration)"
    return {"title": title, **{name: metrics[name] for name in names if name in metrics}}


def worst(options: Options) -> Values:
    """Return the most confident errors; those of an image classifier come with pixels, uint8 (Y, X) or (Y, X, 3)."""
    errors = results(options, errors=20)["errors"]
    if not errors:
        raise DataError(f"{options.model} makes no errors on this data", "give more data, or use `plot confusion`")
    values = {"title": f"{Path(str(options.model)).name}: the most confident errors", "errors": errors}
    if options.images is None:
        return values
    image, source = read_recipe(str(options.model)).image, options.source or ImageSource(path=Path())
    assert image is not None, "the model has been evaluated on images"
    pixels = named_images(options.images[0], source, image, [error["image"] for error in errors])
    return {**values, "images": shown(pixels)}


FIGURES: dict[str, Figure] = {
    "optimizers": SeedFigure(optimizers.race, plots.plot_optimizers),
    "gradients": SeedFigure(gradients.watch, plots.plot_gradients),
    "positions": SeedFigure(positions.look, plots.plot_positions),
    "schedules": SeedFigure(lambda seed: schedules.follow(), plots.plot_schedules),
    "complexity": SeedFigure(complexity.measure, plots.plot_complexity),
    "level-sets": SeedFigure(level_sets.walk, plots.plot_level_sets),
    "batch-norm": SeedFigure(batch_norm.train, plots.plot_batch_norm),
    "rates": SeedFigure(rates.look, plots.plot_panels),
    "depth": SeedFigure(depth.look, plots.plot_panels),
    "truncation": SeedFigure(truncation.look, plots.plot_panels),
    "covariate-shift": SeedFigure(covariate_shift.look, plots.plot_panels),
    "convolutions": SeedFigure(convolutions.look, plots.plot_panels),
    "agreement": SeedFigure(agreement.look, plots.plot_panels),
    "consistency": SeedFigure(consistency.look, plots.plot_panels),
    "self-supervision": SeedFigure(self_supervision.look, plots.plot_panels),
    "embeddings": EmbeddingsFigure(embeddings.place, plots.plot_embeddings, most=2000),
    "rollout": ImageModelFigure(rollout.follow, plots.plot_heat, most=6),
    "grad-cam": ImageModelFigure(grad_cam.explain, plots.plot_heat, most=6, takes_layer=True),
    "filters": ImageModelFigure(filters.look, plots.plot_tiles),
    "features": ImageModelFigure(features.look, plots.plot_tiles, most=1, takes_layer=True),
    "shifts": ImageModelFigure(shifts.measure, plots.plot_shifts, most=32),
    "attention": TextFigure(attention.look, plots.plot_look),
    "confusion": ResultFigure(confusion, plots.plot_confusion),
    "calibration": ResultFigure(calibration, plots.plot_calibration),
    "errors": ResultFigure(worst, plots.plot_errors),
}


class Plotted(Values):
    """The values of a figure, and `figure`, the file, which a notebook shows instead of the values."""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        file = Path(self["figure"])
        if not file.exists():
            return {}
        is_png, content = suffix_of(file) == "png", file.read_bytes()
        return {"image/png": content} if is_png else {"image/svg+xml": content.decode()}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"the figure {self['figure']}")


def plot(
    name: str,
    out: Name | None = None,
    seed: int = 0,
    *,
    model: Name | None = None,
    images: Name | Sequence[Name] = (),
    texts: Name | None = None,
    text: str | None = None,
    target: str | None = None,
    layer: str | int | None = None,
    device: str = "cpu",
) -> Values:
    """Plot a figure to a PNG or SVG file, NAME.png by default, and return the plotted values.

    Some figures need only the `seed`, others a `model` and `images`: image files, folders of images, or a dataset as
    for training. Some show the feature maps of a `layer`. `embeddings` also accepts a text encoder and `texts`: a file
    with one text per line, or with labelled texts. `confusion`, `calibration` and `errors` show the results of a
    classifier on labelled `texts` or `images`. `attention` shows a `layer`, by default the last, for a `text`. For
    a translator, `target` is the translation of the text, by default the output of the model. As the last line of a
    cell in a notebook, the result shows the figure.
    """
    if name not in FIGURES:
        raise ConfigError(f"there is no figure called `{name}`", suggest(name, FIGURES))
    figure, out = FIGURES[name], Path(out or f"{name}.png")
    suffix_of(out)  # raises for an unsupported file type, before anything is computed
    paths = [Path(path) for path in ([images] if isinstance(images, str | Path) else images)]
    options = Options(seed, device, model, paths or None, texts, text, target, layer)
    figure.check(name, options.given)
    values = figure.compute(options)
    figure.draw(values, out)
    return Plotted({"figure": str(out), "picture": str(out), **values})  # `picture` is the old name of `figure`


def load_attentive(model: str, device: str = "cpu") -> attention.Attentive:
    """Load a model that shows its self-attention: its handle or, for example for a classifier, its encoder."""
    opened = open_packed(model, device)
    task = task_of(opened.recipe)
    if task.n_tokenizers == 0:
        raise CheckpointError(
            f"{model} is an image model; `plot attention` needs a text model",
            f"for a Vision Transformer, use clearformer plot rollout --model {model} --images FOLDER",
        )
    with suppress(CheckpointError):  # a BERT without a head has no handle
        handle = task.handle(opened)
        if isinstance(handle, attention.Attentive):
            return handle
    encoder = task.encoder(opened, None)
    if not isinstance(encoder, attention.Attentive):
        raise CheckpointError(f"{model} has no attention", "choose a Transformer for text")
    return encoder


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, because the tensors are so small that a second thread would cost more than it saves."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
