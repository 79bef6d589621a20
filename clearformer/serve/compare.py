"""POST /api/compare: two models on one text.

    outputs        what each of them writes or predicts, as its command prints it with --json
    tokens         the probability and rank of each token of the text, or of the translation that both read
    layers         how far their activations are apart (lens/difference.py)
    activations    the attention patterns of both, by 0/NAME and 1/NAME

A translator reads a translation: `target`, or else the translation by the first model, so that both read the same.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from clearformer.handles.classifier import Classifier
from clearformer.handles.handle import Handle
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.translator import Translator
from clearformer.lens.difference import check_comparable, compared_layers, layer_differences, token_probabilities
from clearformer.lens.points import points
from clearformer.lens.reading import Reading, read
from clearformer.lens.session import Lens
from clearformer.serve.activations import axes, check_size, whole
from clearformer.serve.answers import answer_of
from clearformer.serve.lens import refuse_files
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened, Store
from clearformer.verbs.translate import as_row

router = APIRouter(prefix="/api")


class Compare(BaseModel):
    """A request to compare two models. `max_new` limits the continuation of a language model."""

    model_config = ConfigDict(extra="forbid")

    models: Annotated[list[str], Field(min_length=2, max_length=2)]
    text: Text
    target: Text | None = None
    max_new: int = Field(20, ge=1, le=500)
    patterns: bool = Field(True, description="whether to return the attention patterns of both")


@router.post("/compare")
def compare(request: Request, body: Compare, accept: Annotated[str, Header()] = "") -> Response:
    store: Store = request.app.state.store
    opened: list[Opened] = [store.open(name) for name in body.models]
    first, second = (one.handle for one in opened)
    refuse_files(first)
    check_comparable(first, second, (body.models[0], body.models[1]))
    target, parts = body.target, []
    for one in opened:  # one after the other: two requests that wait for each other's model would wait forever
        with one.use() as handle:
            output = output_of(handle, body.text, body.max_new)
            if target is None and isinstance(handle, Translator) and output is not None:
                target = str(output["translation"])
            parts.append(look(read(handle, body.text, target), output, body.patterns))
    tensors = {f"{i}/{name}": tensor for i, part in enumerate(parts) for name, tensor in part.patterns.items()}
    check_size(tensors)
    values: dict[str, Any] = {
        "models": body.models,
        "kind": first.kind,
        "target": target,
        "outputs": [part.output for part in parts],
        "tokens": [part.tokens for part in parts],
        "layers": layer_differences(parts[0].lens, parts[1].lens, parts[0].names),
        "activations": {
            f"{i}/{name}": axes(part.reading, name, tensor)
            for i, part in enumerate(parts)
            for name, tensor in part.patterns.items()
        },
    }
    return answer_of(values, tensors, accept)


@dataclass(frozen=True)
class Part:
    """One of the two models at work on the text: its output, and what a lens kept of the pass."""

    reading: Reading
    output: dict[str, Any] | None
    tokens: list[dict[str, Any]] | None
    lens: Lens
    names: list[str]

    @property
    def patterns(self) -> dict[str, Tensor]:
        return {name: whole(self.lens[name]) for name in self.lens if name.endswith(".pattern")}


def look(reading: Reading, output: dict[str, Any] | None, has_patterns: bool) -> Part:
    """Run a model once, and keep the activations to compare."""
    names = compared_layers(reading)
    patterns = [name for name in points(reading.model) if name.endswith(".pattern")] if has_patterns else []
    logits, lens = reading.look(keep=[*names, *patterns])
    return Part(reading, output, token_probabilities(reading, logits), lens, names)


def output_of(handle: Handle, text: str, max_new: int) -> dict[str, Any] | None:
    """Return what a model makes of a text: a translation, a greedy continuation, or classes; None for other kinds."""
    if isinstance(handle, Translator):
        return as_row(text, handle.candidates(text)[0])
    if isinstance(handle, LanguageModel):
        return {"prompt": text, **asdict(handle.generate(text, temperature=0.0, max_new=max_new)[0])}
    if isinstance(handle, Classifier):
        row: dict[str, Any] = handle.predict(text, top=max(1, len(handle.classes)))
        return row
    return None
