"""A tiny BERT that has read a little, and reviews whose labels follow a rule."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors, save_tensors, weights_of, write_text
from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.models.bert import Bert, BertConfig
from clearformer.objectives.masked_lm import MaskedLM, MaskedLMConfig
from clearformer.recipe import Recipe
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.training.distributed import World

WORDS = ("the", "a", "film", "story", "plot", "actor", "scene", "long", "short", "old", "new", "calm", "and", "of")


def sentences(n: int, seed: int) -> list[str]:
    """Half of them contain `fine`, the others `dull`."""
    draw = Random(seed)
    found = []
    for i in range(n):
        words = draw.choices(WORDS, k=draw.randint(2, 5))
        words.insert(draw.randint(0, len(words)), ("dull", "fine")[i % 2])
        found.append(" ".join(words))
    return found


def write_reviews(path: Path, n: int, seed: int) -> Path:
    texts = sentences(n, seed)
    path.write_text("".join(f"{text}\t{'good' if 'fine' in text.split() else 'bad'}\n" for text in texts))
    return path


def pretrain(tokenizer: Tokenizer, steps: int = 20) -> Bert:
    torch.manual_seed(0)
    sizes = {"n_layers": 2, "d_model": 32, "d_ff": 46, "n_heads": 2, "max_length": 23, "dropout": 0.0}
    model = Bert(BertConfig(vocab=tokenizer.vocab_size, **sizes, attention_dropout=0.0, next_sentence_head=False))
    objective, optimizer = MaskedLM(MaskedLMConfig()), torch.optim.Adam(model.parameters(), 1e-3)
    rows = tokenizer.encode_with_specials(sentences(160, 5))[0]
    for step in range(steps):
        some = rows[step * 8 : step * 8 + 8]
        tokens = torch.full((8, max(map(len, some))), tokenizer.pad_id)
        for i, row in enumerate(some):
            tokens[i, : len(row)] = torch.tensor(row)
        mask = tokens != tokenizer.pad_id
        asked = mask & (torch.rand(tokens.shape) < 0.2)
        asked[:, 1] = True
        batch = EncoderBatch(tokens.where(~asked, tokenizer.unk_id), mask, labels=tokens.where(asked, IGNORE))
        total, count = objective(model, batch)
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def save_model(folder: Path, model: torch.nn.Module, tokenizer: Tokenizer) -> Path:
    """As an import would."""
    folder.mkdir()
    write_text(folder / "recipe.toml", foreign_recipe(model.config, Origin(source="tiny")).dump())
    write_text(folder / "tokenizer.json", tokenizer.to_json())
    save_tensors(folder / "model.safetensors", weights_of(model))
    return folder


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    return train_tokenizer(sentences(200, 1), TextConfig(kind="word", min_frequency=1, vocab_size=50))


@pytest.fixture(scope="session")
def tiny_bert(words: Tokenizer, tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-bert", pretrain(words), words)


@pytest.fixture(scope="session")
def reviews(tmp_path_factory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("labels") / "reviews.tsv", 500, 3)


@pytest.fixture
def no_images(monkeypatch):
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)


@pytest.fixture
def goes_on(tmp_path: Path) -> Callable[[Recipe], set[str]]:
    """Holds a training of twenty steps against one that was cut off after ten and resumed, bit for bit.

    Returns the names of all that they save.
    """

    def check(recipe: Recipe) -> set[str]:
        fit.train(recipe, tmp_path / "whole", device="cpu")
        run = RunFolder(tmp_path / "again")
        trainer, task = fit.set_up(recipe, run, torch.device("cpu"), World(), None)
        trainer.config = trainer.config.changed(steps=10)
        trainer.schedule = trainer.schedule.changed(steps=20)
        trainer.train(task.steps(World()))
        run.recipe.write_text(task.recipe.dump())
        clearformer.train(resume=True, out=run.path, device="cpu")
        ours, theirs = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "again"))
        assert ours.keys() == theirs.keys()
        assert all(ours[name].equal(theirs[name]) for name in ours)
        return set(ours)

    return check
