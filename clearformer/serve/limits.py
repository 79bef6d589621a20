"""What one request, and all of them together, may take.

413 more bytes, 422 more texts, characters or tokens, 429 a full queue, 408 a body that does not arrive, 504 a deadline.
"""

from dataclasses import dataclass

MOST_TEXTS = 256  # per request; these two are part of the description of the API
MOST_CHARS = 20_000  # per text


@dataclass(frozen=True)
class Limits:
    """Limits that are chosen when a server starts."""

    body: int = 1_000_000
    """Bytes of a request."""
    upload: int = 25_000_000
    """Bytes of a request with an image or a recording."""
    tokens: int = 4096
    """Tokens that one request may ask for, per sequence."""
    queue: int = 1024
    """Texts that wait for one model; further ones are refused."""
    seconds: float = 120.0
    """From a complete request to its last byte."""
    body_seconds: float = 30.0
    """For the body of a request to arrive."""
    head_seconds: float = 10.0
    """For the headers of a request to arrive, from its first byte or from the connection."""
    free_memory: int = 256_000_000
    """Bytes of memory that must be free for a request to be accepted."""
