"""The output of --json: one JSON object on stdout, and nothing else."""

import math
from collections.abc import Mapping
from json import dumps
from typing import Any


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object. JSON has no infinity and no NaN, so these become null."""
    try:
        text = dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = dumps(finite(value), ensure_ascii=False, allow_nan=False)
    print(text)


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
