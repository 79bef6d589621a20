"""The worked examples of the course notes, computed by the code of this package: one file per family.

find("apple").run()        the figures of one example: what the notes have, and what the code computes
EXAMPLES                   all examples by name, in the order of the notes' subjects
"""

from clearformer.errors import ConfigError, suggest
from clearformer.worked import (
    attention,
    bleu,
    calculus,
    images,
    norms,
    optimisers,
    positions,
    recurrence,
    sizes,
    subwords,
    word_vectors,
)
from clearformer.worked.example import Example

FAMILIES = (
    word_vectors, attention, positions, norms, subwords, sizes, calculus, optimisers, images, recurrence, bleu,
)  # fmt: skip
EXAMPLES: dict[str, Example] = {
    item.name: item for family in FAMILIES for item in vars(family).values() if isinstance(item, Example)
}


def find(name: str) -> Example:
    """Return an example by name."""
    if name not in EXAMPLES:
        raise ConfigError(f"the notes have no worked example `{name}`", suggest(name, EXAMPLES))
    return EXAMPLES[name]
