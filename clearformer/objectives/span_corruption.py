"""Span corruption: say the spans that a text has lost, in order (Raffel et al. 2020, section 3.1.4).

loss = − Σ_t log p(y_t | y_<t, x̂),    y the lost spans behind their sentinels, x̂ the text with sentinels in their places

How spans are dropped, data/spans.py tells; the loss is that of translating the one into the other.
"""

from pydantic import Field

from clearformer.data.spans import SpanConfig
from clearformer.objectives.translation import Translation


class SpanCorruptionConfig(SpanConfig):
    """[objective]"""

    kind: str = "span-corruption"
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="ε, the share given to all words alike")


class SpanCorruption(Translation):
    Config = SpanCorruptionConfig  # type: ignore[assignment]
    task = "span-corruption"
