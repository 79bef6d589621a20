"""transcribe: recognise the words of recordings."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearformer.data.sources import read_each
from clearformer.errors import DataError
from clearformer.handles.batching import refuse_string
from clearformer.handles.transcriber import Transcriber
from clearformer.verbs.load import load_for


def transcribe(
    model: str | Path, sounds: Sequence[Any], *, device: str = "cpu", broken: list[DataError] | None = None
) -> list[dict[str, Any]]:
    """Return one row per recording: path, text, and `words`, each with its start and end in seconds.

    A recording is the path of a sound file, an array of samples at the model's sampling rate, or a tuple of samples and
    their rate. The path of samples is None.
    A file that cannot be read raises an error. If `broken` is a list, the file is skipped, and the error is appended to
    the list.
    """
    refuse_string(sounds, "file")
    transcriber: Transcriber = load_for("transcribe", model, device)
    files = read_each(sounds, transcriber.open, broken)
    transcripts = transcriber.transcribe([samples for _, samples in files])
    names = [str(sound) if isinstance(sound, str | Path) else None for sound, _ in files]
    return [{"path": name, **asdict(transcript)} for name, transcript in zip(names, transcripts)]
