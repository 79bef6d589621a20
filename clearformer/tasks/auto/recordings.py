"""Zero configuration for recordings: a recipe chosen from how many there are and how long, every choice said aloud.

vocabulary   whole words where there are few and each is said often, as with spoken digits; else letters
rate         the sample rate of most recordings, 16 kHz at most
batch        frames for several of the longest recordings
length       some number of passes over the data, fewer for more recordings, with early stopping
"""

import wave
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.recordings import Recording
from clearformer.data.sources import evenly
from clearformer.errors import ConfigError
from clearformer.models.build import model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import gentle_training, in_passes, tunable_outline, tuning_tables
from clearformer.tasks.task import Plan, Request
from clearformer.training.journal import console
from clearformer.training.loop import rounds
from clearformer.training.precision import pick_device
from clearformer.tuning.methods import SAID, rate_for

# recordings up to: passes over them from scratch, and from a trained model
PASSES: list[tuple[float, int, int]] = [(2_000, 40, 15), (20_000, 20, 6), (float("inf"), 8, 3)]
HIGHEST = 16_000  # samples a second: speech has little above half of that
HEADERS = 200  # WAV headers that are read to tell lengths and rates
WORDS, REPEATED = 200, 5  # at most so many words, each said at least so often on average: words are the vocabulary
FRAMES = 4096  # a step, or twice the longest recording


class Survey(NamedTuple):
    n: int
    seconds: float  # of all, as far as some of them tell
    longest: float
    rate: int
    has_few_words: bool


def plan_recordings(request: Request) -> Plan:
    """The recipe for a speech recogniser from scratch."""
    model = {model_key(request.model): request.model} if request.model else {"preset": "speech-lstm"}
    table: dict[str, Any] = {"data": request.data, "model": {**model, "dropout": 0.3}}
    draft = request.recipe(table)
    if (task := model_task(draft.model.kind)) != "ctc":
        raise ConfigError(
            f"{request.model} is a model for {task}, not for speech", "choose speech-lstm or speech-transformer-small"
        )
    survey = look_at(draft.data.read("train"))
    rate = min(HIGHEST, survey.rate)
    passes = next(row for row in PASSES if survey.n <= row[0])[1]
    tokens = max(FRAMES, int(2 * survey.longest * 100) + 2)
    steps = int(max(300, round(passes * survey.seconds * 100 / tokens, -1)))
    table |= {
        "sound": {"rate": rate, "n_mels": 40 if rate <= 8000 else 80},
        "text": {"kind": "word" if survey.has_few_words else "char", "min_frequency": 1},
        "optim": {"kind": "adamw", "lr": 3e-3 if draft.model.kind == "speech-rnn" else 1e-3, "weight_decay": 0.05},
        "schedule": {"kind": "cosine", "warmup": request.steps(steps) // 20},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99},
    }
    recipe = request.recipe(table)
    assert recipe.sound is not None
    console.print(
        f"{describe(survey)}: {recipe.model.preset or recipe.model.kind} on {recipe.sound.n_mels} log-mel bands at "
        f"{recipe.sound.rate:,} Hz, {recipe.text.kind} tokens, {training(recipe, survey, request)}"
    )
    return Plan(recipe)


def plan_finetune_recordings(request: Request, start: Path, old: Tables) -> Plan:
    """The recipe of a trained recogniser with other recordings: its frames, vocabulary and sizes, a gentler rate."""
    if (task := model_task(old.model.kind)) != "ctc":
        raise ConfigError(f"{start} is a model for {task}, not for speech", "start from a speech recogniser")
    tables = old.tables()
    table: dict[str, Any] = {
        name: tables[name] for name in ("text", "sound", "model", "objective", "origin") if name in tables
    }
    table |= {"data": request.data, **tuning_tables(start, old, request.method)}
    draft = request.recipe(table)
    tunable_outline(draft)
    survey = look_at(draft.data.read("train"))
    passes = next(row for row in PASSES if survey.n <= row[0])[2]
    tokens = max(old.train.tokens, int(2 * survey.longest * 100) + 2)
    steps = int(max(50, round(passes * survey.seconds * 100 / tokens, -1)))
    table |= gentle_training(rate_for(request.method, old.model.d_model), tokens, steps, 15, request)
    recipe = request.recipe(table)
    console.print(f"{describe(survey)}: {SAID[request.method]} from {start}, {training(recipe, survey, request)}")
    return Plan(recipe)


def look_at(recordings: Sequence[Recording]) -> Survey:
    """Lengths and rates from the headers of some recordings, from all over; words from all transcripts."""
    if not recordings:
        raise ConfigError("no recording is left to train on", "give more, or hold out a smaller fraction")
    lengths, rates = [], Counter[int]()
    for recording in evenly(recordings, HEADERS):
        try:
            with wave.open(str(recording.path), "rb") as file:
                rates[file.getframerate()] += 1
                lengths.append(file.getnframes() / max(1, file.getframerate()))
        except (wave.Error, EOFError, OSError):
            continue  # `store` names it
    words = Counter(word for recording in recordings for word in recording.text.split())
    mean = sum(lengths) / max(1, len(lengths))
    has_few_words = len(words) <= WORDS and words.total() >= REPEATED * len(words)
    rate = rates.most_common(1)[0][0] if rates else HIGHEST
    return Survey(len(recordings), mean * len(recordings), max(lengths, default=1.0), rate, has_few_words)


def describe(survey: Survey) -> str:
    return f"{survey.n:,} recordings, about {survey.seconds:,.0f} s"


def training(recipe: Tables, survey: Survey, request: Request) -> str:
    passes = recipe.train.steps * recipe.train.tokens / (survey.seconds * 100)
    return (
        f"{recipe.train.tokens:,} frames a step, {recipe.train.steps:,} steps ({in_passes(passes)}), "
        f"peak learning rate {recipe.optim.lr:g}, on {pick_device(request.device)}"
    )
