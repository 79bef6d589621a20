"""The positions of a model, without a text.

POST /api/positions          the view `clearformer lens positions --json`, and the vectors of its encodings
POST /api/positions/shift    how well one rotation explains a shift by k positions, and the rotation itself
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearformer.lens.positions import positions as look
from clearformer.lens.positions import shift_of, tables
from clearformer.serve.answers import JSONText, answer_of
from clearformer.serve.store import Opened

FEATURES = 64  # rows and columns of the rotation in the answer
router = APIRouter(prefix="/api")


class Positions(BaseModel):
    """A request for the positions of a model."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None


class Shift(BaseModel):
    """A request for the rotation of a shift by k. `name` is the name of an encoding; the first one by default."""

    model_config = ConfigDict(extra="forbid")

    k: int = Field(ge=1)
    name: str | None = None
    model: str | None = None


@router.post("/positions")
def positions(request: Request, body: Positions, accept: Annotated[str, Header()] = "") -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use() as handle:
        values: dict[str, Any] = look(handle)
        vectors = tables(handle)
    shapes = {name: {"shape": list(table.shape), "rows": None, "columns": None} for name, table in vectors.items()}
    return answer_of({**values, "activations": shapes}, vectors, accept)


@router.post("/positions/shift")
def shift(request: Request, body: Shift) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use() as handle:
        return JSONText(shift_of(handle, body.k, body.name, FEATURES))
