"""Span corruption: predict the removed spans of a text, in order (Raffel et al. 2020, section 3.1.4).

loss = − Σ_t log p(y_t | y_<t, x̂),    y the spans, each after its sentinel; x̂ the text with a sentinel for each span

data/spans.py draws the spans. The loss is the translation loss from x̂ to y.
"""

from pydantic import Field

from clearformer.data.spans import SpanConfig
from clearformer.objectives.translation import Translation


class SpanCorruptionConfig(SpanConfig):
    """The [objective] table of a recipe: settings of span corruption."""

    kind: str = "span-corruption"
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing ε: probability spread evenly over the vocabulary"
    )


class SpanCorruption(Translation):
    Config = SpanCorruptionConfig  # type: ignore[assignment]
    task = "span-corruption"
