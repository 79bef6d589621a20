"""Folders that Hugging Face's libraries wrote, opened as if they were ours."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clearformer.errors import CheckpointError
from clearformer.loading.folder import find
from clearformer.loading.open import open_model
from clearformer.tasks.task import Pretrained
from clearformer.verbs.load import load

Hub = Callable[..., Path]


def test_a_folder_is_opened_for_whoever_goes_on_with_it(hub: Hub) -> None:
    opened = open_model(hub("bert"))
    assert isinstance(opened, Pretrained)
    assert (opened.config.kind, opened.config.d_model, opened.name) == ("bert", 14, "hub")
    assert opened.recipe.data is None
    assert opened.recipe.origin is not None
    assert opened.recipe.origin.source == "hub"
    assert len(opened.tokenizers) == 1
    assert type(opened.network.encoder.blocks[0].mlp.up).__name__ == "Linear"  # not packed: it can be trained


@pytest.mark.parametrize(("more", "fits"), [(3, True), (4, False)])
def test_a_tokenizer_may_be_smaller_than_the_table_but_not_larger(hub: Hub, more: int, fits: bool) -> None:
    path = hub("gpt2", more=more)
    if fits:
        assert load(path).tokenizer.vocab_size == 21
        return
    with pytest.raises(CheckpointError, match="the tokenizer has 22 tokens, but the model expects 21"):
        load(path)


def test_folders_that_cannot_be_opened_say_why(hub: Hub, tmp_path: Path) -> None:
    path = hub("bert")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"a pickle, which can run code when opened\nhint: .*clearformer import"):
        load(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"has no recipe.toml\nhint: .*--out folder.*config.json"):
        find(tmp_path / "empty")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(CheckpointError, match=r"is a file, not a folder\nhint: .*clearformer import"):
        find(tmp_path / "model.gguf")
