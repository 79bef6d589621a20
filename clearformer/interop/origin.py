"""The [origin] table, which replaces [data] in the recipe of an imported model."""

from typing import Literal

from pydantic import Field

from clearformer.config import Config


class Origin(Config):
    """The [origin] table of a recipe: where an imported model came from."""

    source: str = Field(description="name of the folder or file that the model was imported from")
    format: Literal["huggingface", "gguf", "torchvision"] = Field(
        "huggingface", description="format of the imported folder or file"
    )
