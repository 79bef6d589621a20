"""How networks from elsewhere want their pictures: the [image] of each, and preprocessor_config.json.

    torchvision     the middle 7/8 of a picture, less ImageNet's mean, by its spread, channel by channel
    Hugging Face    preprocessor_config.json: a picture is stretched to `size`, or its middle is cut out

torchvision's GoogLeNet was trained on numbers from −1 to 1: mean and spread 0.5. Small pictures are read to their
edges. Where a folder does not say, torchvision's numbers are taken. Resizing is always bilinear here.
"""

from pathlib import Path
from typing import Any

from clearformer.checkpoint import write_json
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.folder import read_json

PROCESSOR = "preprocessor_config.json"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pictures, red, green, blue
MARGIN = 0.0625  # (256 − 224) / 2 of 256


def usual_image(config: Any) -> ImageConfig:
    """For weights that come without a word about pictures."""
    mean, std = ((0.5,) * 3, (0.5,) * 3) if config.kind == "googlenet" else (MEAN, STD)
    if config.channels == 1:
        mean, std = ((sum(values) / 3,) for values in (mean, std))  # type: ignore[assignment]
    margin = MARGIN if config.size >= 224 else 0.0
    return ImageConfig(size=config.size, channels=config.channels, mean=mean, std=std, margin=margin)


def read_image(folder: Path, config: Any) -> ImageConfig:
    """What a folder of Hugging Face's says; what it does not is usual."""
    usual = usual_image(config)
    if not (folder / PROCESSOR).exists():
        return usual
    said = read_json(folder / PROCESSOR, "download it again")
    side, is_cut = (
        side_of(said.get("size", config.size)),
        "crop_pct" in said or "shortest_edge" in str(said.get("size")),
    )
    kept = 1.0  # of the shorter side
    if said.get("do_center_crop") and "crop_size" in said:
        kept, side = side_of(said["crop_size"]) / side, side_of(said["crop_size"])
    elif is_cut and side < 384:  # from there on all is kept, whatever crop_pct says
        kept = said.get("crop_pct", 0.875)
    return ImageConfig.parse(
        {
            "size": side,
            "channels": config.channels,
            "mean": said.get("image_mean", usual.mean),
            "std": said.get("image_std", usual.std),
            "fit": "crop" if is_cut else "stretch",
            "margin": (1 - kept) / 2,
        },
        str(folder / PROCESSOR),
    )


def side_of(size: Any) -> int:
    """224, {"height": 224, "width": 224} or {"shortest_edge": 224}."""
    side = size.get("height", size.get("shortest_edge")) if isinstance(size, dict) else size
    if not isinstance(side, int) or side < 1:
        raise CheckpointError(f"{PROCESSOR}: a `size` of {size} is not known", "give it as a number of pixels")
    return side


def write_image(folder: Path, image: ImageConfig) -> None:
    """preprocessor_config.json of the same. Theirs know no bars: a picture that is padded here is stretched there."""
    is_cut = image.fit == "crop"
    write_json(
        folder / PROCESSOR,
        {
            "image_processor_type": "ConvNextImageProcessor" if is_cut else "ViTImageProcessor",
            "do_resize": True,
            "size": {"shortest_edge": image.size} if is_cut else {"height": image.size, "width": image.size},
            **({"crop_pct": 1 - 2 * image.margin} if is_cut else {}),
            "resample": 2,  # bilinear
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": image.mean,
            "image_std": image.std,
        },
    )
