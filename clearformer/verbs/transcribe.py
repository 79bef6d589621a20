"""transcribe: recognise the words of recordings."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

from clearformer.data.sources import read_each
from clearformer.errors import DataError
from clearformer.handles.inputs import is_one
from clearformer.handles.transcriber import Transcriber
from clearformer.verbs.load import load_for


@overload
def transcribe(model: str | Path, sounds: str | Path, *, device: str = "cpu") -> dict[str, Any]: ...
@overload
def transcribe(
    model: str | Path, sounds: Sequence[Any], *, device: str = "cpu", broken: list[DataError] | None = None
) -> list[dict[str, Any]]: ...
def transcribe(
    model: str | Path, sounds: Any, *, device: str = "cpu", broken: list[DataError] | None = None
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a row for a recording: path, text, and `words`, each with its start and end in seconds.

    A recording is the path of a sound file, an array of samples at the model's sampling rate, or a tuple of samples and
    their rate. The path of samples is None. A list of recordings gives a list of rows. A file that cannot be read
    raises an error. If `broken` is a list, such a file of several is skipped, and the error is appended to the list.
    """
    transcriber: Transcriber = load_for("transcribe", model, device)
    if is_single := is_one(sounds, (str, Path)):
        sounds, broken = [sounds], None
    files = read_each(sounds, transcriber.open, broken)
    transcripts = transcriber.transcribe([samples for _, samples in files])
    names = [str(sound) if isinstance(sound, str | Path) else None for sound, _ in files]
    rows = [{"path": name, **asdict(transcript)} for name, transcript in zip(names, transcripts)]
    return rows[0] if is_single else rows
