"""Zero-configuration defaults for recordings.

vocabulary   whole words if there are few and each occurs often, as with spoken digits; otherwise characters
rate         the most frequent sample rate, at most 16 kHz
batch        enough frames for two of the longest recordings
epochs       fewer for more recordings, with early stopping
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.audio import measure_audio
from clearformer.data.recordings import Recording
from clearformer.data.sources import evenly_spaced
from clearformer.errors import ConfigError, DataError
from clearformer.models.build import model_key, model_task
from clearformer.tables import Tables
from clearformer.tasks.auto.common import (
    describe_optimizer,
    finetuning_tables,
    in_epochs,
    print_plan,
    tunable_outline,
    tuning_tables,
)
from clearformer.tasks.auto.sizes import SPEECH_EPOCHS, TUNE_SPEECH, tens
from clearformer.tasks.task import Plan, Request
from clearformer.training.config import rounds
from clearformer.tuning.methods import METHOD_NAMES, rate_for
from clearformer.wording import count

HIGHEST = 16_000  # samples per second: speech has little above half this frequency
HEADERS = 200  # headers that are read to estimate lengths and sample rates
WORDS, REPEATED = 200, 5  # maximum distinct words, and minimum mean occurrences, for a vocabulary of words
FRAMES = 4096  # frames per step, or twice the longest recording if that is more


class Survey(NamedTuple):
    n: int
    seconds: float  # total length of all recordings, estimated from some of them
    longest: float
    rate: int
    has_few_words: bool


def plan_recordings(request: Request) -> Plan:
    """Choose a recipe to train a speech recogniser from scratch."""
    model = {model_key(request.model): request.model} if request.model else {"preset": "speech-lstm"}
    table: dict[str, Any] = {"data": request.data, "model": {**model, "dropout": 0.3}}
    draft = request.recipe(table)
    if (task := model_task(draft.model.kind)) != "ctc":
        raise ConfigError(
            f"{request.model} is a model for {task}, not for speech", "choose speech-lstm or speech-transformer-small"
        )
    survey = survey_recordings(draft.data.read("train"))
    rate = min(HIGHEST, survey.rate)
    tokens = max(FRAMES, int(2 * survey.longest * 100) + 2)
    steps = max(300, tens(SPEECH_EPOCHS(survey.n) * survey.seconds * 100 / tokens))
    steps = request.in_epochs(steps, survey.seconds * 100, tokens)
    table |= {
        "sound": {"rate": rate, "n_mels": 40 if rate <= 8000 else 80},
        "text": {"kind": "word" if survey.has_few_words else "char", "min_frequency": 1},
        "optim": {"kind": "adamw", "lr": 3e-3 if draft.model.kind == "speech-rnn" else 1e-3, "weight_decay": 0.05},
        "schedule": {"kind": "cosine", "warmup": request.steps(steps) // 20},
        "train": {"tokens": tokens, "steps": steps, **rounds(steps, 20), "patience": 6, "ema": 0.99},
    }
    recipe = request.recipe(table)
    assert recipe.sound is not None
    print_plan(
        describe(survey),
        f"{recipe.model.preset or recipe.model.kind} on {count(recipe.sound.n_mels, 'log-mel band')} at "
        f"{recipe.sound.rate:,} Hz, {recipe.text.kind} tokens",
        describe_training(recipe, survey, request),
    )
    return Plan(recipe)


def plan_finetune_recordings(request: Request, start: Path, old: Tables) -> Plan:
    """Adapt the recipe of a trained recogniser to new data, with a lower learning rate; vocabulary and model stay."""
    if (task := model_task(old.model.kind)) != "ctc":
        raise ConfigError(f"{start} is a model for {task}, not for speech", "start from a speech recogniser")
    tables = old.tables()
    table: dict[str, Any] = {
        name: tables[name] for name in ("text", "sound", "model", "objective", "origin") if name in tables
    }
    table |= {"data": request.data, **tuning_tables(start, old, request.method)}
    draft = request.recipe(table)
    tunable_outline(draft)
    survey = survey_recordings(draft.data.read("train"))
    tokens = max(old.train.tokens, int(2 * survey.longest * 100) + 2)
    steps = max(50, round(TUNE_SPEECH(survey.n) * survey.seconds * 100 / tokens))
    steps = request.in_epochs(steps, survey.seconds * 100, tokens)
    table |= finetuning_tables(rate_for(request.method, old.model.d_model), tokens, steps, 15, request)
    recipe = request.recipe(table)
    model = f"{METHOD_NAMES[request.method]} of {start}"
    print_plan(describe(survey), model, describe_training(recipe, survey, request))
    return Plan(recipe)


def survey_recordings(recordings: Sequence[Recording]) -> Survey:
    """Estimate lengths and sample rates from some headers, evenly spaced, and count words in all transcripts."""
    if not recordings:
        raise ConfigError(
            "no recordings are left to train on",
            "add recordings, or lower data.held_out and data.held_out_test",
        )
    lengths, rates = [], Counter[int]()
    for recording in evenly_spaced(recordings, HEADERS):
        try:
            seconds, rate = measure_audio(recording.path)
        except DataError:
            continue  # `store` reports unreadable files
        rates[rate] += 1
        lengths.append(seconds)
    words = Counter(word for recording in recordings for word in recording.text.split())
    mean = sum(lengths) / max(1, len(lengths))
    has_few_words = len(words) <= WORDS and words.total() >= REPEATED * len(words)
    usual = rates.most_common(1)[0][0] if rates else HIGHEST
    return Survey(len(recordings), mean * len(recordings), max(lengths, default=1.0), usual, has_few_words)


def describe(survey: Survey) -> str:
    return f"{count(survey.n, 'recording')}, about {survey.seconds:,.0f} s"


def describe_training(recipe: Tables, survey: Survey, request: Request) -> str:
    n_epochs = recipe.train.steps * recipe.train.tokens / (survey.seconds * 100)
    return (
        f"{count(recipe.train.steps, 'step')} ({in_epochs(n_epochs)}) with {count(recipe.train.tokens, 'frame')} each, "
        f"{describe_optimizer(recipe, request)}"
    )
