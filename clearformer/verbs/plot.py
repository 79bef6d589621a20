"""Figures by name: what computes the numbers of each, and what draws them.

SeedFigure         computed from a seed                                              claims/
ImageModelFigure   computed from a trained network and images                        lens/
EmbeddingsFigure   computed from a trained network and images, or texts              lens/embeddings.py
TextFigure         computed from a trained network and a text                        lens/attention.py
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from clearformer import plots
from clearformer.claims import batch_norm, complexity, gradients, level_sets, optimizers, positions, schedules
from clearformer.data.image_sample import sample_images
from clearformer.data.images import ImageSource
from clearformer.data.labels import LabelSource
from clearformer.data.text_sample import sample_texts
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.handles.text_encoder import TextEncoder
from clearformer.lens import attention, embeddings, features, filters, grad_cam, rollout, shifts
from clearformer.loading.folder import read_recipe, task_of
from clearformer.plots.style import suffix_of
from clearformer.verbs.load import load_encoder, load_image_model, open_packed

Name = str | Path
Numbers = dict[str, Any]
Compute = Callable[..., Numbers]
Draw = Callable[[Mapping[str, Any], Path | str], Path]


@dataclass(frozen=True)
class Options:
    """What a figure may be computed from. `given` has the names of the options that are not None."""

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
        """[data] train of the model, which says how files like those of its training are read; None if imported."""
        return getattr(read_recipe(str(self.model)).data, "train", None)


class Figure(ABC):
    """A figure knows which options it needs and takes, computes its numbers from them, and draws the numbers."""

    example: ClassVar[str] = "--model runs/photos --images photos/"
    draw: Draw

    @abstractmethod
    def compute(self, options: Options) -> Numbers: ...

    def needs(self, given: set[str]) -> set[str]:
        """The options that it cannot do without."""
        return set()

    def takes(self) -> set[str]:
        """The options that it takes besides."""
        return set()

    def check(self, name: str, given: set[str]) -> None:
        """Refuse options that it does not take, and name those that are missing."""
        needs = self.needs(given)
        for option in Options.NAMES:
            flag = "the text" if option == "text" else f"--{option}"  # the text is an argument
            if option in given - needs - self.takes():
                beside = " beside texts" if option == "images" and "texts" in needs else ""
                raise ConfigError(f"the figure `{name}` takes no {option}{beside}", f"leave {flag} out")
            if option in needs - given:
                wanted = "a text" if option == "text" else flag
                raise ConfigError(f"the figure `{name}` needs {wanted}", f"for example {self.example}")


@dataclass(frozen=True)
class SeedFigure(Figure):
    """Computed from a seed, without a model."""

    look: Compute
    draw: Draw

    def compute(self, options: Options) -> Numbers:
        with one_thread():
            return self.look(options.seed)


@dataclass(frozen=True)
class ImageModelFigure(Figure):
    """Computed from an image model, at most `most` images and perhaps a layer; without images where that is 0."""

    look: Compute
    draw: Draw
    most: int = 0
    takes_layer: bool = False

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "images"} if self.most else {"model"}

    def takes(self) -> set[str]:
        return {"layer"} if self.takes_layer else set()

    def compute(self, options: Options) -> Numbers:
        handle = load_image_model(str(options.model), options.device)
        if not self.most:
            return self.look(handle)
        source = options.source or ImageSource(path=Path())
        sample = sample_images(options.images or (), source, handle.image, self.most)
        return self.look(handle, sample, options.layer) if self.takes_layer else self.look(handle, sample)


@dataclass(frozen=True)
class EmbeddingsFigure(ImageModelFigure):
    """Computed from an image model and images, or from a text encoder and texts."""

    example = f"{ImageModelFigure.example}, or --model runs/bert --texts reviews.tsv"

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "texts"} if "texts" in given else super().needs(given)

    def compute(self, options: Options) -> Numbers:
        if options.texts is None:
            return super().compute(options)
        encoder, source = load_encoder(str(options.model), options.device), options.source
        if not isinstance(encoder, TextEncoder):
            raise CheckpointError(f"{encoder.name} reads images, not texts", "give --images instead of --texts")
        sample = sample_texts(Path(options.texts), source if isinstance(source, LabelSource) else None, self.most)
        return embeddings.place_texts(encoder, sample)


@dataclass(frozen=True)
class TextFigure(Figure):
    """Computed from a model that reads a text, or translates it into a target."""

    look: Compute
    draw: Draw

    example = '--model runs/mine "A man rides a bike."'

    def needs(self, given: set[str]) -> set[str]:
        return {"model", "text"}

    def takes(self) -> set[str]:
        return {"target", "layer"}

    def compute(self, options: Options) -> Numbers:
        return self.look(
            load_attentive(str(options.model), options.device), options.text, options.target, options.layer
        )


FIGURES: dict[str, Figure] = {
    "optimizers": SeedFigure(optimizers.race, plots.plot_optimizers),
    "gradients": SeedFigure(gradients.watch, plots.plot_gradients),
    "positions": SeedFigure(positions.look, plots.plot_positions),
    "schedules": SeedFigure(lambda seed: schedules.follow(), plots.plot_schedules),
    "complexity": SeedFigure(complexity.measure, plots.plot_complexity),
    "level-sets": SeedFigure(level_sets.walk, plots.plot_level_sets),
    "batch-norm": SeedFigure(batch_norm.train, plots.plot_batch_norm),
    "embeddings": EmbeddingsFigure(embeddings.place, plots.plot_embeddings, most=2000),
    "rollout": ImageModelFigure(rollout.follow, plots.plot_heat, most=6),
    "grad-cam": ImageModelFigure(grad_cam.explain, plots.plot_heat, most=6, takes_layer=True),
    "filters": ImageModelFigure(filters.look, plots.plot_tiles),
    "features": ImageModelFigure(features.look, plots.plot_tiles, most=1, takes_layer=True),
    "shifts": ImageModelFigure(shifts.measure, plots.plot_shifts, most=32),
    "attention": TextFigure(attention.look, plots.plot_look),
}


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
) -> Numbers:
    """Compute a figure, draw it as a PNG or SVG file, NAME.png by default, and return the numbers that are drawn.

    Some figures are computed from the `seed` alone, others show a `model` at work on `images`: image files, folders of
    them, or a data set as for training. Some show the feature maps of a `layer`. `embeddings` can also show a text
    encoder at work on `texts`: a file of lines, or of labelled texts. `attention` shows a `layer`, the last by
    default, at work on a `text`. A translator attends while it writes the `target`, its own translation by default.
    """
    if name not in FIGURES:
        raise ConfigError(f"there is no figure called `{name}`", suggest(name, FIGURES))
    figure, out = FIGURES[name], Path(out or f"{name}.png")
    suffix_of(out)  # before anything is computed
    paths = [Path(path) for path in ([images] if isinstance(images, str | Path) else images)]
    options = Options(seed, device, model, paths or None, texts, text, target, layer)
    figure.check(name, options.given)
    numbers = figure.compute(options)
    figure.draw(numbers, out)
    return {"picture": str(out), **numbers}


def load_attentive(model: str, device: str = "cpu") -> attention.SelfAttentive:
    """The handle if it has self-attention, else the encoder inside the model, as of a classifier."""
    opened = open_packed(model, device)
    task = task_of(opened.recipe)
    if task.n_tokenizers == 0:
        raise CheckpointError(
            f"{model} reads images, not texts", "`plot rollout` shows the attention of a Vision Transformer"
        )
    with suppress(CheckpointError):  # a BERT without a head has no handle
        handle = task.handle(opened)
        if isinstance(handle, attention.SelfAttentive):
            return handle
    encoder = task.encoder(opened, None)
    if not isinstance(encoder, attention.SelfAttentive):
        raise CheckpointError(f"{model} has no attention to look at", "choose a Transformer that reads texts")
    return encoder


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: the tensors are so small that a second one would cost more than it saves."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
