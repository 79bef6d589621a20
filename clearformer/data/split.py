"""Which sentences are held out of training: a stable coin per source sentence.

A shuffled split would let a sentence with several translations train on one and be tested on another.
Here the source text alone decides, so all its pairs land on one side, in any file and any order, without memory.
"""

from hashlib import blake2b


def held_out(source: str, seed: int, fraction: float) -> bool:
    """True for about `fraction` of all source sentences: blake2b(seed, source) / 2^64 < fraction.

    Python's own `hash` would not do, since it differs from one process to the next.
    """
    digest = blake2b(source.encode(), digest_size=8, salt=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64
