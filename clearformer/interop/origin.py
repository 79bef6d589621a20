"""[origin]: where a model comes from that was not trained here. It stands in for [data] in such a model's recipe."""

from typing import Literal

from pydantic import Field

from clearformer.config import Config


class Origin(Config):
    source: str = Field(description="the folder or file it was read from, by its own name")
    format: Literal["huggingface", "gguf", "torchvision"] = Field(
        "huggingface", description="what kind of thing that was"
    )
