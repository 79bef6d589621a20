"""Convert image preprocessing between the [image] table of a recipe and other libraries.

    torchvision     centre crop to 7/8 of the image, normalised per channel by ImageNet's mean and standard deviation
    Hugging Face    preprocessor_config.json: the image is stretched to `size`, or its centre is cropped

Two exceptions: torchvision's GoogLeNet was trained on pixels from −1 to 1 (mean and standard deviation 0.5), and models
for images smaller than 224 pixels read the whole image. Values missing from preprocessor_config.json default to
torchvision's. Clearformer always resizes bilinearly.
"""

from pathlib import Path
from typing import Any

from clearformer.checkpoint import write_json
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json

PROCESSOR = "preprocessor_config.json"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's red, green and blue channels
MARGIN = 0.0625  # per side: (256 − 224) / 2 pixels of 256


def default_image(config: Any) -> ImageConfig:
    """Return torchvision's preprocessing, for weights that come without a preprocessor_config.json."""
    mean, std = ((0.5,) * 3, (0.5,) * 3) if config.kind == "googlenet" else (MEAN, STD)
    if config.channels == 1:
        mean, std = ((sum(values) / 3,) for values in (mean, std))  # type: ignore[assignment]
    margin = MARGIN if config.size >= 224 else 0.0
    return ImageConfig(size=config.size, channels=config.channels, mean=mean, std=std, margin=margin)


def read_image(folder: Path, config: Any) -> ImageConfig:
    """Read the preprocessing of a Hugging Face folder; missing values default to torchvision's."""
    default = default_image(config)
    if not (folder / PROCESSOR).exists():
        return default
    settings = read_json(folder / PROCESSOR, "download the file again")
    side, is_cropped = (
        side_of(settings.get("size", config.size)),
        "crop_pct" in settings or "shortest_edge" in str(settings.get("size")),
    )
    crop_fraction = 1.0  # of the shorter side
    if settings.get("do_center_crop") and "crop_size" in settings:
        crop_fraction, side = side_of(settings["crop_size"]) / side, side_of(settings["crop_size"])
    elif is_cropped and side < 384:  # larger images are not cropped, whatever crop_pct is
        crop_fraction = settings.get("crop_pct", 0.875)
    return ImageConfig.parse(
        {
            "size": side,
            "channels": config.channels,
            "mean": settings.get("image_mean", default.mean),
            "std": settings.get("image_std", default.std),
            "fit": "crop" if is_cropped else "stretch",
            "margin": (1 - crop_fraction) / 2,
        },
        str(folder / PROCESSOR),
    )


def side_of(size: Any) -> int:
    """Return the side in pixels of a size such as 224, {"height": 224, "width": 224} or {"shortest_edge": 224}."""
    side = size.get("height", size.get("shortest_edge")) if isinstance(size, dict) else size
    if not isinstance(side, int) or side < 1:
        raise CheckpointError(f"{PROCESSOR}: unsupported `size` {size}", "set it to the side in pixels, such as 224")
    return side


def write_image(folder: Path, image: ImageConfig) -> None:
    """Write preprocessor_config.json. Hugging Face cannot pad images: an image that Clearformer pads is stretched."""
    is_cropped = image.fit == "crop"
    write_json(
        folder / PROCESSOR,
        {
            "image_processor_type": "ConvNextImageProcessor" if is_cropped else "ViTImageProcessor",
            "do_resize": True,
            "size": {"shortest_edge": image.size} if is_cropped else {"height": image.size, "width": image.size},
            **({"crop_pct": 1 - 2 * image.margin} if is_cropped else {}),
            "resample": 2,  # bilinear
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": image.mean,
            "image_std": image.std,
        },
    )
