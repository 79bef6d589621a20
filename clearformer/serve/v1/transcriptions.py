"""POST /v1/audio/transcriptions, in the shape of OpenAI's API: the words of a recording."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Request, UploadFile
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from clearformer.data.audio import SoundBytes, open_audio, read_audio
from clearformer.errors import DataError
from clearformer.handles.transcriber import Transcript, Word
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import A_FILE, apply, open_for
from clearformer.serve.shared import Item, Verb
from clearformer.serve.streams import data, streamed

MOST_SECONDS = 3600.0
TOKENS_PER_SECOND = 34  # a pass has 120 seconds of sound (transcriber.py), or 4,096 tokens
WORDS_PER_LINE = 8  # of subtitles
EXAMPLE = 'data: {"type":"transcript.text.delta","delta":"seven"}\n\ndata: [DONE]\n\n'
router = APIRouter()


class TranscriptionRequest(BaseModel):
    """A recording: WAV; with clearformer[audio] also FLAC, OGG, MP3 and AIFF."""

    model_config = ConfigDict(extra="forbid")

    file: UploadFile
    model: Annotated[str | None, Field(max_length=1000, description="the first model by default")] = None
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        [], alias="timestamp_granularities[]", max_length=2, description="verbose_json always has words"
    )
    language: str | None = Field(None, max_length=100, description="ignored: a model knows one")
    prompt: str | None = Field(None, max_length=10_000, description="ignored")
    temperature: float | None = Field(None, ge=0, le=1, description="ignored: the most probable text is returned")
    stream: bool | None = Field(None, description="with json or text: the words as events, as soon as all are known")


class TimedWord(BaseModel):
    word: str
    start: float = Field(description="seconds")
    end: float


class TranscriptionAnswer(BaseModel):
    text: str
    task: str | None = None
    language: str | None = None
    duration: float | None = Field(None, description="seconds")
    words: list[TimedWord] | None = None


@dataclass(frozen=True)
class Transcribe(Verb):
    """The words and the seconds of each recording, which is the content of a file."""

    def prepare(self, handle: Any, contents: Sequence[bytes]) -> list[Item]:
        return [Item(one, round(seconds_of(one) * TOKENS_PER_SECOND)) for one in contents]

    def compute(self, handle: Any, contents: list[bytes]) -> list[tuple[Transcript, float]]:
        # Decoded here, since an hour of samples takes more memory than a compressed file that waits.
        recordings = [handle.open(read_audio(SoundBytes(content), MOST_SECONDS)) for content in contents]
        seconds = [len(samples) / handle.sound.rate for samples in recordings]
        return list(zip(handle.transcribe(recordings), seconds))


def seconds_of(content: bytes) -> float:
    """Return the length of a recording by its header."""
    with open_audio(SoundBytes(content)) as stream:
        return MOST_SECONDS if stream.n_frames is None else min(stream.n_frames / stream.rate, MOST_SECONDS)


@router.post(
    "/v1/audio/transcriptions",
    response_model=TranscriptionAnswer,
    responses={
        200: {
            "description": "The words.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE},
            },
        }
    },
)
async def transcribe(request: Request, body: Annotated[TranscriptionRequest, Form()]) -> Response:
    """Transcribe a recording."""
    if body.stream and body.response_format not in ("json", "text"):
        raise DataError(f"{body.response_format} cannot be streamed", 'set response_format to "json", or omit stream')
    _, chosen = await open_for(request, "transcribe", body.model)
    content = await body.file.read()

    [(transcript, seconds)] = await apply(request, chosen, Transcribe(), [content], A_FILE)
    if body.stream:
        return streamed(request, deltas(transcript))
    if body.response_format == "json":
        return JSONText({"text": transcript.text})
    if body.response_format == "verbose_json":
        words = [{"word": word.word, "start": word.start, "end": word.end} for word in transcript.words]
        facts = {"task": "transcribe", "language": body.language or "unknown", "duration": seconds}
        return JSONText({**facts, "text": transcript.text, "words": words})
    if body.response_format == "text":
        return PlainTextResponse(transcript.text + "\n")
    return PlainTextResponse(subtitles(transcript.words, body.response_format))


async def deltas(transcript: Transcript) -> AsyncIterator[str]:
    """Yield the text word by word, then the whole text. All words are known at once: the network reads both ways."""
    for i, word in enumerate(transcript.text.split(" ")):
        yield data({"type": "transcript.text.delta", "delta": f" {word}" if i else word})
    yield data({"type": "transcript.text.done", "text": transcript.text})


def subtitles(words: list[Word], format: str) -> str:
    """Return subtitles as SubRip or WebVTT, a few words at a time."""
    lines = [words[i : i + WORDS_PER_LINE] for i in range(0, len(words), WORDS_PER_LINE)]
    mark = "," if format == "srt" else "."
    blocks = [
        f"{f'{i}' + chr(10) if format == 'srt' else ''}{clock(line[0].start, mark)} --> {clock(line[-1].end, mark)}\n"
        + " ".join(word.word for word in line)
        for i, line in enumerate(lines, 1)
    ]
    return "\n\n".join([*(["WEBVTT"] if format == "vtt" else []), *blocks]) + "\n"


def clock(seconds: float, mark: str) -> str:
    """Return 01:02:03,004."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
