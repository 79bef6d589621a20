"""Convert ResNet to our format and back. A ResNetModel, which has no head, becomes a model with n_classes = 0."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.bert import prefix_in
from clearformer.interop.huggingface.class_names import class_settings, count_classes
from clearformer.interop.huggingface.folder import Shapes, exporter, importer
from clearformer.interop.huggingface.settings import our_settings, require_fields, require_settings
from clearformer.interop.names import Rows, conv_rows, inside, rows_of, to_ours, to_theirs
from clearformer.interop.pixels import read_image
from clearformer.layers.residual import N_CONVS
from clearformer.models.resnet import ResNetConfig

CONFIG = {
    "num_channels": "channels",
    "embedding_size": "stem_width",
    "hidden_sizes": "widths",
    "depths": "depths",
    "layer_type": "block",
}
SWITCHES = {"hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False}
FIXED = {"stem": "7x7", "shortcut": "projection"}  # the same in every ResNet of Hugging Face

PREFIX, HEAD = "resnet.", "classifier.1."


def import_config(theirs: Mapping[str, Any], where: str) -> ResNetConfig:
    require_settings(theirs, SWITCHES, where)
    return ResNetConfig.parse({**our_settings({"num_channels": 3, **theirs}, CONFIG, where), **FIXED}, where)


def complete(config: ResNetConfig, shapes: Shapes, folder: Path) -> ResNetConfig:
    """Set the number of classes from the head, and the image size from preprocessor_config.json."""
    return config.changed(n_classes=count_classes(shapes, f"{HEAD}weight"), size=read_image(folder, config).size)


def export_config(config: ResNetConfig, classes: Sequence[str] = ()) -> dict[str, Any]:
    if config.stem != FIXED["stem"]:
        raise CheckpointError(
            "transformers has no ResNet for small images: its ResNet begins with a 7×7 convolution with stride 2 and a "
            f"max-pool, and this model with a {config.stem.replace('x', '×')} convolution",
            "export it with --format onnx, or train again with --exportable",
        )
    require_fields(fields := config.model_dump(), FIXED, "ResNet")
    return {
        "model_type": "resnet",
        "architectures": ["ResNetForImageClassification" if config.n_classes else "ResNetModel"],
        **{name: fields[field] for name, field in CONFIG.items()},
        **SWITCHES,
        **class_settings(classes),
    }


def import_weights(theirs: Mapping[str, Tensor], config: ResNetConfig, where: str) -> dict[str, Tensor]:
    return to_ours(theirs, tensor_rows(config, prefix_in(theirs, PREFIX)), where)


def export_weights(ours: Mapping[str, Tensor], config: ResNetConfig) -> dict[str, Tensor]:
    return to_theirs(ours, tensor_rows(config), "the model")


def tensor_rows(config: ResNetConfig, prefix: str | None = None) -> Rows:
    """Return the table rows for all tensors. Names outside the head start with `prefix`, by default Hugging Face's."""
    if prefix is None:
        prefix = PREFIX if config.n_classes else ""
    body = layer("stem.", "embedder.embedder.")
    for place in config.block_shapes:
        ours, theirs = f"stages.{place.stage}.{place.number}.", f"encoder.stages.{place.stage}.layers.{place.number}."
        for i in range(N_CONVS[config.block]):
            body |= layer(f"{ours}path.{i}.", f"{theirs}layer.{i}.")
        if not place.keeps_shape:
            body |= layer(f"{ours}shortcut.", f"{theirs}shortcut.")
    return {**inside("", prefix, body), **(rows_of({"classifier.": HEAD}) if config.n_classes else {})}


def layer(ours: str, theirs: str) -> Rows:
    return conv_rows(ours, f"{theirs}convolution.", f"{theirs}normalization.")


read_model_config, import_folder = importer("resnet", import_config, import_weights, complete)
export_folder = exporter(export_config, export_weights)
