"""The speech-recognition task, evaluated by word error rate."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from clearformer.checkpoint import RunFolder, write_json
from clearformer.data.audio import read_sound
from clearformer.data.batch import SoundBatch
from clearformer.data.collate import TokenBatches
from clearformer.data.corpora import SpeechCorpora
from clearformer.data.files.open import describe_columns, open_table
from clearformer.data.recordings import (
    Recording,
    RecordingStore,
    RecordingWriter,
    String,
    Strings,
    named_recording_columns,
)
from clearformer.data.sound import SoundConfig
from clearformer.data.tally import Skipped
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.metrics.wer import speech_metrics
from clearformer.generation.best_path import best_path
from clearformer.handles.transcriber import Transcriber
from clearformer.metric import CER, LOSS, WER, Metric
from clearformer.objectives.ctc import CTC, ctc_loss
from clearformer.tables import Tables
from clearformer.tasks import RECORDINGS, Given
from clearformer.tasks.auto.recordings import plan_finetune_recordings, plan_recordings
from clearformer.tasks.task import Plan, Pretrained, Request, Task, refuse_options
from clearformer.text import Tokenizer, train_tokenizer
from clearformer.training.journal import console
from clearformer.wording import count

HELD_OUT_SEED = 0  # for validation and test, the strings of recordings do not depend on train.seed


class StringBatches:
    """Strings (recordings joined end to end), drawn for each epoch, in batches of similar length.

    A batch has at most `frames` frames, including padding.
    """

    is_drawn = False

    def __init__(self, strings: Strings, hop: int, frames: int, seed: int) -> None:
        self.strings, self.hop, self.frames, self.seed = strings, hop, frames, seed

    def steps(self, epoch: int, group: int) -> list[list[list[String]]]:
        rows = self.strings.epoch(self.seed, epoch)
        groups = self.batches(rows, self.seed).steps(epoch, group)
        return [[[rows[i] for i in index] for index in group] for group in groups]

    def batch(self, rows: list[String], key: tuple[int, int]) -> SoundBatch:
        return self.strings.batch(rows)

    def count(self, rows: list[String]) -> int:
        return sum(map(len, self.strings.tokens(rows)))

    def batches(self, rows: Sequence[String], seed: int = 0) -> TokenBatches:
        frames = np.array([self.strings.length(row) // self.hop for row in rows])
        if (longest := int(frames.max())) >= self.frames:
            raise ConfigError(
                f"train.tokens = {self.frames} is too small for a recording of {count(longest + 1, 'frame')}",
                f"set train.tokens to at least {longest + 1}",
            )
        return TokenBatches(np.stack([frames, frames], axis=1), self.frames, seed)


class SpeechTask(Task):
    flag = RECORDINGS
    data = SpeechCorpora
    objective = CTC
    batch_unit = "frames"

    def __init__(self, recipe: Tables, run: RunFolder) -> None:
        super().__init__(recipe, run)
        self.sound = recipe.sound or SoundConfig()

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return WER, CER, LOSS

    @classmethod
    def sources(cls, given: Given) -> dict[str, dict[str, Any]]:
        """Return the files of each split, and the columns of lists with a header."""
        sources = super().sources(given)
        for source in sources.values():
            if columns := named_recording_columns(source["path"]):
                console.print(describe_columns(source["path"], columns.values()))
                source |= columns
        return sources

    @classmethod
    def plan(cls, request: Request) -> Plan:
        return plan_recordings(request)

    @classmethod
    def plan_finetune(cls, request: Request, start: Path, old: Tables) -> Plan:
        return plan_finetune_recordings(request, start, old)

    def learn(self, base: Pretrained | None, survey: Any) -> None:
        """Take the vocabulary of the base model, read text.file, or learn a vocabulary from the transcripts."""
        if base is not None:
            self.tokenizers = [base.tokenizer]
        elif self.recipe.text.file is not None:
            self.tokenizers = [Tokenizer.load(self.recipe.text.file)]
        else:
            self.tokenizers = [
                train_tokenizer((recording.text for recording in self.training_recordings), self.recipe.text)
            ]

    def settle(self) -> Tables:
        recipe = self.recipe.with_tables(sound=self.sound)
        return recipe.with_vocab(vocab=self.tokenizer.vocab_size).with_model(channels=self.sound.n_mels)

    @cached_property
    def training_recordings(self) -> list[Recording]:
        skipped = Skipped()
        recordings: list[Recording] = self.recipe.data.read("train", skipped)
        for line in skipped.describe():
            console.print(line, markup=False)
        return recordings

    def store(self) -> None:
        """Store the recordings, resampled to the sample rate of the model, and their transcripts."""
        data = self.recipe.data
        has_test = data.test is not None or data.held_out_test > 0
        for split in ("test", "valid", "train") if has_test else ("valid", "train"):  # train comes last
            recordings = self.training_recordings if split == "train" else data.read(split)
            if not recordings:
                raise DataError(f"the {split} split has no recordings", f"add recordings, or set data.{split}.path")
            self.store_split(recordings, split)

    def store_split(self, recordings: Sequence[Recording], split: str) -> None:
        speakers = {
            speaker: i for i, speaker in enumerate(dict.fromkeys(recording.speaker for recording in recordings))
        }
        write_json(self.run.data / f"{split}.json", [recording.text for recording in recordings])
        with RecordingWriter(self.path(split), 2**16) as writer:
            for recording in recordings:
                samples = read_sound(recording.path, self.sound.rate, self.sound.window_samples)
                writer.add(samples, speakers[recording.speaker])
        by = f", {count(len(speakers), 'speaker')}" if len(speakers) > 1 else ""
        console.print(f"{split}: {count(len(recordings), 'recording')}" + by)

    def split(self, name: str) -> StringBatches:
        texts = json.loads((self.run.data / f"{name}.json").read_text(encoding="utf-8"))
        source = getattr(self.recipe.data, name) or self.recipe.data.train
        strings = Strings(RecordingStore(self.path(name)), texts, self.tokenizer, source, self.sound.rate)
        train = self.recipe.train
        return StringBatches(strings, self.sound.hop_samples, train.tokens, train.seed)

    def describe(self) -> str:
        store = self.split("train").strings.store
        return f"{count(len(store), 'training recording')}, {store.lengths.sum() / self.sound.rate:,.0f} s"

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Return wer, cer, the number of words and sentences, and the loss per token."""
        transcriber, batches = Transcriber(model, self.tokenizer, self.sound), self.split(split)
        strings = batches.strings
        rows = strings.epoch(HELD_OUT_SEED, 0)
        loss, n, references, transcripts = 0.0, 0, list[str](), list[str]()
        for index in batches.batches(rows).epoch(0):
            chosen = [rows[i] for i in index]
            batch = strings.batch(chosen).to(transcriber.device)
            logits, lengths = transcriber.logits(batch)
            assert batch.labels is not None
            loss, n = loss + float(ctc_loss(logits, lengths, batch.labels)), n + batch.n_tokens
            transcripts += [transcriber.spell(path).text for path in best_path(logits, lengths)]
            references += [as_written(strings.text(row), self.recipe) for row in chosen]
        return {**speech_metrics(transcripts, references), "loss": loss / n}

    @classmethod
    def handle(cls, model: Pretrained) -> Transcriber:
        assert model.recipe.sound is not None, "`settle` adds [sound]"
        return Transcriber(model.network, model.tokenizer, model.recipe.sound, model.name)

    @classmethod
    def evaluate(cls, model: Pretrained, given: Given, **options: Any) -> dict[str, Any]:
        """Return wer and cer as fractions, and the number of words and sentences. Recordings are never joined here."""
        refuse_options(given, options)
        unjoined = {"speaker": None, "join": None, "silence": (0.0, 0.0), "strings": None}
        path, train = Path(given.files), model.recipe.data.train
        columns = named_recording_columns(path)
        if columns and train.sound in open_table(path).names():
            columns = {}  # the columns of the training data are used
        source = train.changed(path=path, **columns, **unjoined)
        recordings = list(source.read())
        transcripts = cls.handle(model).transcribe([recording.path for recording in recordings])
        references = [as_written(recording.text, model.recipe) for recording in recordings]
        return speech_metrics([transcript.text for transcript in transcripts], references)


def as_written(text: str, recipe: Tables) -> str:
    """Return a transcript in a form that the model can produce: in lower case if text.lowercase is set."""
    return text.lower() if recipe.text.lowercase else text
