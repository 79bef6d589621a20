"""Which sentences, or pictures, are held out of training: a stable place for each source sentence.

A shuffled split would let a sentence with several translations train on one and be tested on another.
Here the source text alone decides, so all its pairs land on one side, in any file and any order, without memory.
"""

from hashlib import blake2b


def place(source: str | bytes, seed: int = 0) -> float:
    """Where a sentence, or the bytes of a picture, falls in [0, 1): blake2b(seed, source) / 2^64.

    Evenly spread, and the same on every machine. Python's own `hash` would not do: it differs from process to process.
    """
    content = source.encode() if isinstance(source, str) else source
    digest = blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") / 2**64
