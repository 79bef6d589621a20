"""POST /v1/classify: classes of texts, words or images, as `clearformer classify --json` prints them."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from threading import Lock
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.errors import ConfigError, DataError
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import A_FILE, apply, open_for
from clearformer.serve.schemas import Body, Model, Texts, as_list, example
from clearformer.serve.shared import Item, Verb, text_sizes
from clearformer.serve.trace import trace_of
from clearformer.serve.uploads import pixels_of
from clearformer.wording import count

MOST_IMAGES = 64
PIXELS_PER_TOKEN = 512  # a pass has 2,097,152 values of pixels (image_model.py), or 4,096 tokens
DECODING = Lock()  # one request at a time: an image of 40 million pixels takes 160 MB until it has the model's size
Image = Annotated[str, Field(max_length=25_000_000, description="an image file in base64, or a data URL")]
DATA_URL = re.compile(r"data:[\w.+/-]*;base64,")
router = APIRouter()


class ClassifyRequest(Body):
    """A request to classify texts, pairs of texts, or images."""

    model_config = example(model="reviews", text=["A fine film.", "A waste of time."], top=2)

    text: Texts | None = None
    pair: Texts | None = Field(None, description="the second text of each pair")
    image: Image | Annotated[list[Image], Field(max_length=MOST_IMAGES)] | None = None
    model: Model = None
    top: int | None = Field(None, ge=1, le=1000, description="classes per input; 1 for texts, 5 for images")


class Class(BaseModel):
    label: str
    probability: float


class ClassifiedWord(BaseModel):
    word: str
    label: str | None = None
    probability: float | None = None
    value: float | None = None
    top: list[Class] | None = None


class Classified(BaseModel):
    text: str | None = None
    pair: str | None = None
    image: str | None = None
    label: str | None = None
    probability: float | None = None
    value: float | None = Field(None, description="of a regression model, instead of classes")
    top: list[Class] | None = None
    words: list[ClassifiedWord] | None = Field(None, description="of a tagger")


class Classes(BaseModel):
    texts: list[Classified] | None = None
    images: list[Classified] | None = None


@dataclass(frozen=True)
class ClassifyTexts(Verb):
    """The classes of each text, or of each pair of texts; of each of its words, by a tagger."""

    top: int
    has_pairs: bool

    def prepare(self, handle: Any, pairs: Sequence[tuple[str, str | None]]) -> list[Item]:
        sizes = text_sizes(handle, handle.tokenizer, [f"{text} {pair or ''}" for text, pair in pairs])
        return list(map(Item, pairs, sizes))

    def compute(self, handle: Any, pairs: list[tuple[str, str | None]]) -> list[dict[str, Any]]:
        texts, others = [text for text, _ in pairs], [pair for _, pair in pairs]
        rows: list[dict[str, Any]] = handle.predict(texts, others if self.has_pairs else None, self.top)
        return rows


@dataclass(frozen=True)
class ClassifyImages(Verb):
    """The classes of each image, which is a file in base64 with its number in the request."""

    top: int

    def prepare(self, handle: Any, files: Sequence[tuple[int, str]]) -> list[Item]:
        names = [f"image {i}" for i, _ in files]
        with DECODING:
            pixels = [pixels_of(handle, decode(text, name)) for name, (_, text) in zip(names, files)]
        return [Item((name, one), one.size // PIXELS_PER_TOKEN) for name, one in zip(names, pixels)]

    def compute(self, handle: Any, images: list[tuple[str, np.ndarray]]) -> list[dict[str, Any]]:
        rows = handle.predict([pixels for _, pixels in images], None, self.top)
        return [{**row, "image": name} for row, (name, _) in zip(rows, images)]


@router.post("/v1/classify", response_model=Classes, response_model_exclude_unset=True)
async def classify(request: Request, body: ClassifyRequest) -> Response:
    """Classify texts, words or images."""
    _, chosen = await open_for(request, "classify", body.model)
    handle: Any = chosen.handle
    is_image = isinstance(handle, ImageClassifier)
    given, other = (body.image, body.text) if is_image else (body.text, body.image)
    if given is None or other is not None:
        wanted = "image" if is_image else "text"
        raise ConfigError(f"{handle.name} is {handle.kind}: it needs `{wanted}` and nothing else", f"send `{wanted}`")
    inputs, pairs = as_list(given), None if body.pair is None else as_list(body.pair)
    if pairs is not None and len(pairs) != len(inputs):
        message = f"{count(len(inputs), 'text')} and {count(len(pairs), 'second text')} cannot be paired"
        raise ConfigError(message, "give as many second texts as texts")
    trace_of(request).texts = None if is_image else inputs
    top = body.top or handle.default_top

    verb: Verb = ClassifyImages(top) if is_image else ClassifyTexts(top, pairs is not None)
    items: Iterable[Any] = enumerate(inputs) if is_image else zip_longest(inputs, pairs or [])
    n_chars = A_FILE if is_image else sum(map(len, [*inputs, *(pairs or [])]))
    rows = await apply(request, chosen, verb, list(items), n_chars)
    return JSONText({handle.json_key: rows})


def decode(text: str, name: str) -> bytes:
    """Return the bytes of a file in base64, with or without `data:image/png;base64,` before it."""
    try:
        return base64.b64decode(DATA_URL.sub("", text, count=1), validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{name} is not base64", "send the bytes of an image file in base64") from None
