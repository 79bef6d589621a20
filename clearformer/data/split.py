"""Assign sentences and images to splits by a hash of their content, scaled to a place in [0, 1).

With a shuffled split, a sentence with several translations could occur in both the training and the test data. Here the
split depends only on the source text, so all its pairs are in one split, whatever their file and order.
"""

from hashlib import blake2b


def place(source: str | bytes, seed: int = 0) -> float:
    """Return the place of a sentence, or of the bytes of an image, in [0, 1): blake2b(seed, source) / 2^64.

    Places are uniformly distributed and equal on all machines, unlike Python's `hash`, which differs between processes.
    """
    content = source.encode() if isinstance(source, str) else source
    digest = blake2b(content, digest_size=8, salt=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") / 2**64
