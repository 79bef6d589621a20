"""Plot the CTC output of a speech model, below the waveform and the log-mel frames of the recording."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import BLUE, COLOURS, MUTED, saved_figure


def ctc_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    return {data["transcript"] or "silence": partial(plot_ctc, data)}


def plot_ctc(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.lens.ctc.ctc`: all panels have the same time axis, in seconds."""
    seconds, frame = data["seconds"], data["seconds_per_frame"]
    with saved_figure(path, min(16, max(7, 4 * seconds)), 6.6) as figure:
        families, [title] = lettering([shorten(data["title"], 120)])
        figure.suptitle(title, fontsize=11, fontfamily=families)
        wave, mel, spikes = figure.subplots(3, 1, sharex=True, height_ratios=[0.7, 1, 1.4])
        low, high = data["wave"]["low"], data["wave"]["high"]
        wave.fill_between(np.linspace(0, seconds, len(low)), low, high, color=BLUE, linewidth=0.3)
        wave.set_ylabel("wave")
        bands = np.array(data["mel"])
        end = data["mel_hop"] * bands.shape[1]
        mel.imshow(bands, aspect="auto", origin="lower", cmap="magma", extent=(0, end, 0, len(bands)))
        mel.set_ylabel("mel band")
        times = frame * (np.arange(len(data["blank"])) + 0.5)
        spikes.plot(times, data["blank"], color=MUTED, linestyle="--", linewidth=0.9, label="blank")
        for i, row in enumerate(data["probabilities"]):
            spikes.plot(times, row, color=COLOURS[i % len(COLOURS)], linewidth=1.2)
        families, words = lettering([make_visible(one["token"]) for one in data["spikes"]])
        for one, word in zip(data["spikes"], words):
            place = frame * (one["start"] + one["end"]) / 2, one["probability"]
            spikes.annotate(word, place, (0, 3), textcoords="offset points", ha="center", fontfamily=families)
        spikes.set(xlabel="seconds", ylabel="probability", ylim=(0, 1.15), xlim=(0, max(seconds, end)))
        spikes.legend(loc="upper right")
    return Path(path)
