"""Where sentences end: at the end of a line, or at marks such as . and ? before a space."""

import re

END = re.compile(r"(?<=[.!?…।])\s+|(?<=[.!?…।][\"'”’)\]])\s+|\s*\n\s*\n\s*")


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def marked(text: str) -> list[str]:
    """Split a text after . ! ? … and closing quotes or brackets, if a space follows; "Mr. Smith" is split, too."""
    return [part for part in END.split(text) if part.strip()]
