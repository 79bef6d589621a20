"""Pictures by name: what computes the numbers of each, and what draws them.

a claim       of the notes, computed here and now, from a seed                      claims/
a portrait    of a trained network, at work on pictures or texts that are given     lens/
a gaze        of a trained network, over a text that it reads or translates         lens/attention.py
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearformer import plots
from clearformer.claims import batch_norm, complexity, gradients, level_sets, optimizers, positions, schedules
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.handles.text_encoder import TextEncoder
from clearformer.lens import attention, embeddings, features, filters, grad_cam, rollout, shifts
from clearformer.loading.contents import read_recipe
from clearformer.loading.handles import load, load_encoder, load_eye
from clearformer.plots.style import suffix_of
from clearformer.recipe import task_of

Name = str | Path
Draw = Callable[[Mapping[str, Any], Path | str], Path]


class Claim(NamedTuple):
    compute: Callable[[int], dict[str, Any]]  # from a seed
    draw: Draw


class Portrait(NamedTuple):
    compute: Callable[..., dict[str, Any]]  # from an ImageModel, an Album, a layer
    draw: Draw
    most: int = 0  # pictures, or texts, that it looks at
    takes_layer: bool = False
    of_texts: Callable[..., dict[str, Any]] | None = None  # the same from a TextEncoder and Excerpts


class Gaze(NamedTuple):
    compute: Callable[..., dict[str, Any]]  # from a handle that reads texts, a text, its target and a layer
    draw: Draw


FIGURES: dict[str, Claim | Portrait | Gaze] = {
    "optimizers": Claim(optimizers.race, plots.plot_optimizers),
    "gradients": Claim(gradients.watch, plots.plot_gradients),
    "positions": Claim(positions.look, plots.plot_positions),
    "schedules": Claim(lambda seed: schedules.follow(), plots.plot_schedules),
    "complexity": Claim(complexity.measure, plots.plot_complexity),
    "level-sets": Claim(level_sets.walk, plots.plot_level_sets),
    "batch-norm": Claim(batch_norm.train, plots.plot_batch_norm),
    "embeddings": Portrait(embeddings.place, plots.plot_embeddings, most=2000, of_texts=embeddings.place_texts),
    "rollout": Portrait(rollout.follow, plots.plot_heat, most=6),
    "grad-cam": Portrait(grad_cam.explain, plots.plot_heat, most=6, takes_layer=True),
    "filters": Portrait(filters.look, plots.plot_tiles),
    "features": Portrait(features.look, plots.plot_tiles, most=1, takes_layer=True),
    "shifts": Portrait(shifts.measure, plots.plot_shifts, most=32),
    "attention": Gaze(attention.look, plots.plot_look),
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
) -> dict[str, Any]:
    """Compute a figure and draw it as a PNG or SVG file, by default NAME.png; returns the numbers that are drawn.

    A claim is computed from the seed; a portrait is of the `model`, most at work on `images`: pictures, folders or
    files of them. Some show the maps of a `layer`. Of a model that reads, `embeddings` are those of `texts`: a file of
    lines, or of labelled texts. `attention` is that of a `layer`, the last or by its number, over a `text`, which a
    translator translates, by `target` if given.
    """
    if name not in FIGURES:
        raise ConfigError(f"there is no figure called `{name}`", suggest(name, FIGURES))
    figure, out = FIGURES[name], Path(out or f"{name}.png")
    suffix_of(out)  # before anything is computed
    paths = [Path(path) for path in ([images] if isinstance(images, str | Path) else images)]
    options = {"model": model, "images": paths or None, "texts": texts, "text": text, "target": target, "layer": layer}
    check_options(name, figure, {option for option, value in options.items() if value is not None})
    if isinstance(figure, Claim):
        with one_thread():
            numbers = figure.compute(seed)
    elif isinstance(figure, Gaze):
        numbers = figure.compute(load_attentive(str(model), device), text, target, layer)
    elif texts is None:
        numbers = portray(figure, str(model), paths, layer, device)
    else:
        numbers = portray_reader(figure, str(model), Path(texts), device)
    figure.draw(numbers, out)
    return {"picture": str(out), **numbers}


def check_options(name: str, figure: Claim | Portrait | Gaze, given: set[str]) -> None:
    """Each figure has options that it needs, and others that it takes."""
    needs, takes, example = set[str](), set[str](), "--model runs/photos --images photos/"
    if isinstance(figure, Gaze):
        needs, takes, example = {"model", "text"}, {"target", "layer"}, '--model runs/mine "A man rides a bike."'
    elif isinstance(figure, Portrait):
        has_texts = "texts" in given and figure.of_texts is not None
        needs = {"model", "texts"} if has_texts else {"model", "images"} if figure.most else {"model"}
        takes = {"layer"} if figure.takes_layer else set()
        example += "" if figure.of_texts is None else ", or --model runs/bert --texts reviews.tsv"
    for option in ("model", "images", "texts", "text", "target", "layer"):
        written = "the text" if option == "text" else f"--{option}"  # which is an argument
        if option in given - needs - takes:
            beside = " beside texts" if option == "images" and "texts" in needs else ""
            raise ConfigError(f"the figure `{name}` takes no {option}{beside}", f"leave {written} out")
        if option in needs - given:
            wanted = "a text" if option == "text" else written
            raise ConfigError(f"the figure `{name}` needs {wanted}", f"for example {example}")


def load_attentive(model: str, device: str) -> Any:
    """What a text is given to as it is in use: a translator, a language model, or whatever else reads."""
    if task_of("model", read_recipe(model).model.kind) in ("translation", "causal-lm"):
        return load(model, device)
    encoder = load_encoder(model, device)
    if not isinstance(encoder, TextEncoder):
        raise CheckpointError(
            f"{model} sees pictures, and reads no texts", "where a Vision Transformer looks, `plot rollout` shows"
        )
    return encoder


def portray(figure: Portrait, model: str, paths: list[Path], layer: str | int | None, device: str) -> dict[str, Any]:
    from clearformer.data.album import open_album
    from clearformer.data.images import ImageSource

    eye, data = load_eye(model, device), read_recipe(model).data
    if not figure.most:
        return figure.compute(eye)
    kind = ImageSource(path=Path()) if data is None else data.train
    album = open_album(paths, kind, eye.image, figure.most)
    return figure.compute(eye, album, layer) if figure.takes_layer else figure.compute(eye, album)


def portray_reader(figure: Portrait, model: str, path: Path, device: str) -> dict[str, Any]:
    from clearformer.data.excerpts import open_excerpts
    from clearformer.data.labels import LabelSource

    encoder, kind = load_encoder(model, device), getattr(read_recipe(model).data, "train", None)
    if not isinstance(encoder, TextEncoder):
        raise CheckpointError(f"{model} sees pictures, and reads no texts", "give --images instead of --texts")
    assert figure.of_texts is not None
    return figure.of_texts(encoder, open_excerpts(path, kind if isinstance(kind, LabelSource) else None, figure.most))


@contextmanager
def one_thread() -> Iterator[None]:
    """All sizes of claims are small: a second thread would only be waited for."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
