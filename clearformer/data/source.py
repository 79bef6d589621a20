"""The base class of the sources of a recipe: [data.train], [data.valid] and [data.test]."""

from pydantic import Field

from clearformer.config import Config


class Source(Config):
    """Where the examples of a split come from. Every subclass has `path`."""

    given: str | None = Field(
        None, description="the Python object that the data was given as; the run keeps a copy of it at `path`"
    )
