"""Recordings to a model of speech, judged by how many words it gets wrong."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.checkpoint import RunFolder, write_json, write_text
from clearformer.data.batch import SoundBatch
from clearformer.data.collate import TokenBatches
from clearformer.data.recordings import Recording, RecordingStore, RecordingWriter, String, Strings
from clearformer.data.sound import SoundConfig
from clearformer.data.wav import read_sound
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.metrics.wer import score_speech
from clearformer.generation.best_path import best_path
from clearformer.handles.transcriber import Transcriber
from clearformer.loading.handles import load_as
from clearformer.objectives.ctc import ctc_loss
from clearformer.prepare import is_prepared
from clearformer.recipe import Recipe
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import console
from clearformer.training.loop import Validate
from clearformer.training.precision import autocast

HELD_OUT_SEED = 0  # strings to validate and to test on are the same for every training


class SpeechTask:
    metrics = ("wer", "cer", "loss")
    unit = "tokens"

    def __init__(self, recipe: Recipe, run: RunFolder) -> None:
        self.sound = recipe.sound or SoundConfig()
        self.recipe, self.run = replace(recipe, sound=self.sound), run
        self.facts: dict[str, Any] = {}

    def prepare(self, base: Any) -> None:
        """Samples at the model's rate, and transcripts beside them. The vocabulary is the base's, if there is one."""
        if is_prepared(self.run):
            return
        data = self.recipe.data
        train = data.read("train")
        if base is not None:
            tokenizer = base.tokenizer
        elif self.recipe.text.file is not None:
            tokenizer = Tokenizer.load(self.recipe.text.file)
        else:
            tokenizer = train_tokenizer((recording.text for recording in train), self.recipe.text)
        self.run.path.mkdir(parents=True, exist_ok=True)
        write_text(self.run.path / "tokenizer.json", tokenizer.to_json())
        has_test = data.test is not None or data.held_out_test > 0
        for split in ("test", "valid", "train") if has_test else ("valid", "train"):  # train comes last
            found = train if split == "train" else data.read(split)
            if not found:
                raise DataError(f"there is no recording for {split}", f"give more, or a list for [data] {split}")
            self.store(found, split)

    def store(self, recordings: Sequence[Recording], split: str) -> None:
        speakers = {speaker: i for i, speaker in enumerate(dict.fromkeys(one.speaker for one in recordings))}
        write_json(self.run.data / f"{split}.json", [recording.text for recording in recordings])
        with RecordingWriter(self.run.data / f"{split}.safetensors", 2**16) as writer:
            for recording in recordings:
                samples = read_sound(recording.path, self.sound.rate, self.sound.window_samples)
                writer.add(samples, speakers[recording.speaker])
        told = f"{len(recordings):,} recordings"
        console.print(f"{split}: {told} by {len(speakers)} speakers" if len(speakers) > 1 else f"{split}: {told}")

    def open(self) -> Recipe:
        self.tokenizer = Tokenizer.load(self.run.path / "tokenizer.json")
        self.facts = {"tokenizers": [self.tokenizer.fingerprint()]}
        self.recipe = self.recipe.with_vocab(vocab=self.tokenizer.vocab_size).with_model(channels=self.sound.n_mels)
        return self.recipe

    def strings(self, split: str) -> Strings:
        texts = json.loads((self.run.data / f"{split}.json").read_text(encoding="utf-8"))
        source = getattr(self.recipe.data, split) or self.recipe.data.train
        store = RecordingStore(self.run.data / f"{split}.safetensors")
        return Strings(store, texts, self.tokenizer, source, self.sound.rate)

    def describe(self, world: World) -> str:
        strings, steps = self.strings("train"), self.steps(world)
        seconds = strings.store.lengths.sum() / self.sound.rate
        return f"{len(strings.store):,} training recordings, {seconds:,.0f} s, {steps.count(0):,} steps an epoch"

    def steps(self, world: World) -> Steps:
        return StringSteps(self.strings("train"), self.recipe, world)

    def validation(self, device: torch.device) -> Validate:
        strings = self.strings("valid")

        def validate(model: nn.Module, step: int) -> dict[str, float]:
            with torch.compiler.set_stance("force_eager"), autocast(device, self.recipe.train.precision):
                scores = self.measure(Transcriber(model, self.tokenizer, self.sound), strings)
            return {name: scores[name] for name in self.metrics}

        return validate

    def test(self, device: torch.device) -> dict[str, Any]:
        if not (self.run.data / "test.safetensors").exists():
            return {}
        scores = self.measure(load_as(Transcriber, self.run.path, str(device)), self.strings("test"))
        console.print(
            f"test: word error rate {scores['wer']:.4f} on {scores['words']:,} words in {scores['sentences']:,} strings"
        )
        return scores

    def measure(self, transcriber: Transcriber, strings: Strings) -> dict[str, Any]:
        """wer, cer, words, sentences, and the loss, a token."""
        rows = strings.epoch(HELD_OUT_SEED, 0)
        plan = batches_of(strings, rows, self.recipe).epoch(0)
        loss, n, said, heard = 0.0, 0, list[str](), list[str]()
        for index in plan:
            some = [rows[i] for i in index]
            batch = strings.batch(some).to(transcriber.device)
            logits, lengths = transcriber.scores(batch)
            assert batch.labels is not None
            loss, n = loss + float(ctc_loss(logits, lengths, batch.labels)), n + batch.n_tokens
            heard += [transcriber.spell(path).text for path in best_path(logits, lengths)]
            said += [written(strings.text(row), self.recipe) for row in some]
        return {**score_speech(heard, said), "loss": loss / n}


def written(text: str, recipe: Recipe) -> str:
    """A transcript as the model could write it: without capitals where its vocabulary has none."""
    return text.lower() if recipe.text.lowercase else text


def batches_of(strings: Strings, rows: Sequence[String], recipe: Recipe, seed: int = 0) -> TokenBatches:
    """Rows of like length together, `train.tokens` frames to a batch, padding included."""
    assert recipe.sound is not None
    hop = recipe.sound.hop_samples
    frames = np.array([strings.length(row) // hop for row in rows])
    if (longest := int(frames.max())) >= recipe.train.tokens:
        raise ConfigError(
            f"train.tokens = {recipe.train.tokens} frames hold no recording of {longest + 1}", "set it higher"
        )
    return TokenBatches(np.stack([frames, frames], axis=1), recipe.train.tokens, seed)


class StringSteps:
    """The trainer's view of recordings: for each step of each epoch, the micro-batches of every rank."""

    def __init__(self, strings: Strings, recipe: Recipe, world: World) -> None:
        self.strings, self.group = strings, recipe.train.accumulation * world.size
        seed = recipe.train.seed

        @lru_cache(maxsize=2)
        def plan(epoch: int) -> list[list[list[String]]]:
            rows = strings.epoch(seed, epoch)
            groups = batches_of(strings, rows, recipe, seed).steps(epoch, self.group)
            return [[[rows[i] for i in index] for index in group] for group in groups]

        self.plan = plan

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> tuple[list[SoundBatch], int]:
        group = self.plan(epoch)[position]
        count = sum(len(tokens) for rows in group for tokens in self.strings.tokens(rows))
        return [self.strings.batch(rows) for rows in world.share(group)], count
