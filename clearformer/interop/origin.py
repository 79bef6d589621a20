"""[origin]: the source of an imported model. It replaces [data] in the recipe of such a model."""

from typing import Literal

from pydantic import Field

from clearformer.config import Config


class Origin(Config):
    """The table [origin] of a recipe."""

    source: str = Field(description="name of the folder or file that the model was imported from")
    format: Literal["huggingface", "gguf", "torchvision"] = Field(
        "huggingface", description="format of that folder or file"
    )
