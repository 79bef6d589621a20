from pathlib import Path
from typing import Any

from clearformer.plots import plot_growth


def results(none: dict[str, Any], blocks: dict[str, Any]) -> dict[str, Any]:
    """The results of benchmarks/growth.py with the same rows in every sweep."""
    slopes = {
        how: {"seconds": {"slope": 1.25}, "peak_gb": {"slope": p}} for how, p in (("none", 0.97), ("blocks", 0.5))
    }
    sweeps = ("context", "batch", "vocabulary", "depth")
    return {
        "title": "how it grows",
        **{name: {"none": none, "blocks": blocks} for name in sweeps},
        "growth": dict.fromkeys(sweeps, slopes),
        "decode": {"positions": [256, 512], "milliseconds": [3.1, 3.2]},
    }


def test_every_panel_has_its_sizes_and_slopes(tmp_path: Path) -> None:
    """The largest size does not fit into memory unless blocks are recomputed; its line ends earlier."""
    stored = {"1024": {"seconds": 0.1, "peak_gb": 3.0}, "32768": None}
    recomputed = {"1024": {"seconds": 0.13, "peak_gb": 2.5}, "32768": {"seconds": 2.0, "peak_gb": 6.0}}
    svg = plot_growth(results(stored, recomputed), tmp_path / "growth.svg").read_text()
    assert svg.count("<!-- 32k -->") == 5
    assert svg.count("<!-- 1,024 -->") == 5
    for across in ("context", "batch", "vocabulary", "depth"):
        assert svg.count(f"<!-- all stored: {across}^0.97 -->") == 1
        assert svg.count(f"<!-- blocks recomputed: {across}^0.50 -->") == 1
    assert svg.count("<!-- blocks recomputed: context^1.25 -->") == 1
    for words in ("how it grows", "seconds per step", "peak memory, GB", "milliseconds per token"):
        assert f"<!-- {words} -->" in svg
