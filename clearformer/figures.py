"""Pictures by name: what computes the numbers of each, and what draws them.

a claim       of the notes, computed here and now, from a seed                      claims/
a portrait    of a trained network, at work on pictures or texts that are given     lens/
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearformer import plots
from clearformer.claims import batch_norm, complexity, gradients, level_sets, optimizers, positions, schedules
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.lens import embeddings, features, filters, grad_cam, rollout, shifts
from clearformer.loading.contents import read_recipe
from clearformer.loading.handles import load_encoder, load_eye
from clearformer.plots.style import suffix_of
from clearformer.reading.encoder import Encoder

Name = str | Path
Draw = Callable[[Mapping[str, Any], Path | str], Path]


class Claim(NamedTuple):
    compute: Callable[[int], dict[str, Any]]  # from a seed
    draw: Draw


class Portrait(NamedTuple):
    compute: Callable[..., dict[str, Any]]  # from an Eye, an Album if it looks at pictures, a layer if it takes one
    draw: Draw
    most: int = 0  # pictures, or texts, that it looks at
    takes_layer: bool = False
    of_texts: Callable[..., dict[str, Any]] | None = None  # the same from an Encoder and Excerpts, if it takes texts


FIGURES: dict[str, Claim | Portrait] = {
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
}


def plot(
    name: str,
    out: Name | None = None,
    seed: int = 0,
    *,
    model: Name | None = None,
    images: Name | Sequence[Name] = (),
    texts: Name | None = None,
    layer: str | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Compute a figure and draw it as a PNG or SVG file, by default NAME.png; returns the numbers that are drawn.

    A claim is computed from the seed; a portrait is of the `model`, most at work on `images`: pictures, folders or
    files of them. Some show the maps of a `layer`. Of a model that reads, `embeddings` are those of `texts`: a file of
    lines, or of labelled texts.
    """
    if name not in FIGURES:
        raise ConfigError(f"there is no figure called `{name}`", suggest(name, FIGURES))
    figure, out = FIGURES[name], Path(out or f"{name}.png")
    suffix_of(out)  # before anything is computed
    paths = [Path(path) for path in ([images] if isinstance(images, str | Path) else images)]
    given = {"model": model is not None, "images": bool(paths), "texts": texts is not None, "layer": layer is not None}
    wanted, example = dict.fromkeys(given, False), "--model runs/photos --images photos/"
    if isinstance(figure, Portrait):
        has_texts = given["texts"] and figure.of_texts is not None
        wanted = {"model": True, "images": figure.most > 0 and not has_texts, "texts": has_texts}
        wanted["layer"] = figure.takes_layer and given["layer"]
        example += "" if figure.of_texts is None else ", or --model runs/bert --texts reviews.tsv"
    for option, is_given in given.items():
        if is_given and not wanted[option]:
            beside = " beside texts" if option == "images" and wanted["texts"] else ""
            raise ConfigError(f"the figure `{name}` takes no {option}{beside}", f"leave --{option} out")
        if wanted[option] and not is_given:
            raise ConfigError(f"the figure `{name}` needs --{option}", f"for example {example}")
    if isinstance(figure, Claim):
        with one_thread():
            numbers = figure.compute(seed)
    else:
        numbers = (
            portray(figure, str(model), paths, layer, device)
            if texts is None
            else portray_reader(figure, str(model), Path(texts), device)
        )
    figure.draw(numbers, out)
    return {"picture": str(out), **numbers}


def portray(figure: Portrait, model: str, paths: list[Path], layer: str | None, device: str) -> dict[str, Any]:
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
    if not isinstance(encoder, Encoder):
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
