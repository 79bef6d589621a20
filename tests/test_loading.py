"""Folders that Hugging Face's libraries wrote, opened as if they were ours."""

from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from clearformer.errors import CheckpointError
from clearformer.generation.language import LanguageModel
from clearformer.generation.translate import Translator
from clearformer.loading import Opened, find, load, open_model

WORDS = ["the", "a", "dog", "cat", "man", "sees", "likes", "hears", "tree", "river", "book", "le", "chien", "chat"]
TEXTS = ["the dog sees a tree", "a man", "the cat likes the river book dog dog"]
SPECIALS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}

Folder = Callable[..., Path]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


def word_tokenizer(opened: bool = False, extra: int = 0) -> PreTrainedTokenizerFast:
    """Words, the padding not first; `opened`: <s> before every text."""
    entries = ["</s>", "<unk>", "<s>", *WORDS, *(f"w{i}" for i in range(extra)), "<pad>"]
    rust = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(entries)}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if opened:
        rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=rust, **SPECIALS, **({"bos_token": "<s>"} if opened else {}))


def written(ids: torch.Tensor) -> list[int]:
    """Up to </s>, which is 0."""
    return list(takewhile(bool, ids.tolist()))


V = len(WORDS) + 4
MARIAN: dict[str, Any] = {
    "vocab_size": V + 3, "d_model": 14, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "max_position_embeddings": 37,
    "pad_token_id": V - 1, "eos_token_id": 0, "decoder_start_token_id": V - 1, "forced_eos_token_id": None,
    "init_std": 0.7,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": V + 3, "d_model": 14, "num_layers": 2, "num_heads": 3, "d_kv": 5, "d_ff": 11, "pad_token_id": V - 1,
    "eos_token_id": 0, "decoder_start_token_id": V - 1,
}  # fmt: skip
GPT2: dict[str, Any] = {"vocab_size": V + 3, "n_embd": 14, "n_layer": 2, "n_head": 2, "n_positions": 37}
LLAMA: dict[str, Any] = {
    "vocab_size": V + 3, "hidden_size": 28, "intermediate_size": 11, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 37, "initializer_range": 0.5,
}  # fmt: skip
BERT: dict[str, Any] = {
    "vocab_size": V + 3, "hidden_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 11,
    "max_position_embeddings": 37,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def write(model: str, config: dict[str, Any], tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
        torch.manual_seed(0)
        made = getattr(transformers, model)
        made(made.config_class(**config)).save_pretrained(tmp_path / "hub")
        (tokenizer or word_tokenizer()).save_pretrained(tmp_path / "hub")
        return tmp_path / "hub"

    return write


@pytest.mark.parametrize(
    ("model", "config"), [("MarianMTModel", MARIAN), ("T5ForConditionalGeneration", T5)], ids=["marian", "t5"]
)
@torch.no_grad()
def test_a_translator_from_hugging_face_says_what_it_says_there(
    folder: Folder, model: str, config: dict[str, Any]
) -> None:
    path = folder(model, config)
    theirs, tok = getattr(transformers, model).from_pretrained(path), word_tokenizer()
    ours = load(path)
    assert isinstance(ours, Translator)
    assert ours.target_tokenizer.bos_id == V - 1
    for text in TEXTS:
        ids = torch.tensor([[*tok(text, add_special_tokens=False)["input_ids"], 0]])
        for beam in (1, 3):
            said = theirs.generate(ids, max_length=23, num_beams=beam, do_sample=False, early_stopping=False)[0]
            found = ours.candidates([text], beam=beam, max_ratio=1e-9, max_extra=22)[0][0]
            assert found.tokens == written(said[1:])


@pytest.mark.parametrize(
    ("model", "config", "opened"),
    [("GPT2LMHeadModel", GPT2, False), ("LlamaForCausalLM", LLAMA, True)],
    ids=["gpt2", "llama"],
)
@torch.no_grad()
def test_a_language_model_from_hugging_face_goes_on_as_it_does_there(
    folder: Folder, model: str, config: dict[str, Any], opened: bool
) -> None:
    path = folder(model, {**config, "eos_token_id": 0, "bos_token_id": 2}, word_tokenizer(opened))
    theirs, tok = getattr(transformers, model).from_pretrained(path), word_tokenizer(opened)
    ours = load(path)
    assert isinstance(ours, LanguageModel)
    assert ours.opening == ([2] if opened else [])
    found = ours.generate(TEXTS, temperature=0, max_new=13)
    for text, told in zip(TEXTS, found):
        ids = torch.tensor([tok(text)["input_ids"]])
        said = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=13, do_sample=False)[0]
        assert told[0].tokens == written(said[ids.size(1) :])


def test_a_folder_is_opened_for_whoever_goes_on_with_it(folder: Folder) -> None:
    opened = open_model(folder("BertForMaskedLM", BERT))
    assert isinstance(opened, Opened)
    assert (opened.config.kind, opened.config.d_model, opened.name) == ("bert", 14, "hub")
    assert opened.recipe.data is None
    assert opened.recipe.origin is not None
    assert opened.recipe.origin.source == "hub"
    assert len(opened.tokenizers) == 1
    assert type(opened.network.encoder.blocks[0].mlp.up).__name__ == "Linear"  # not packed: it can be trained


@pytest.mark.parametrize(("extra", "fits"), [(3, True), (4, False)])
def test_a_tokenizer_may_be_smaller_than_the_table_but_not_larger(folder: Folder, extra: int, fits: bool) -> None:
    path = folder("GPT2LMHeadModel", GPT2, word_tokenizer(extra=extra))
    if fits:
        assert load(path).tokenizer.vocab_size == V + 3
        return
    with pytest.raises(CheckpointError, match=f"the tokenizer has {V + 4} entries, the model {V + 3}"):
        load(path)


def test_folders_that_cannot_be_opened_say_why(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is a model for masked-lm.*\n?hint"):
        load(folder("BertModel", BERT))
    (tmp_path / "hub" / "model.safetensors").rename(tmp_path / "hub" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"a pickle, which is not opened here\nhint: .*clearformer import"):
        load(tmp_path / "hub")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"has no recipe.toml\nhint: .*--out folder.*config.json"):
        find(tmp_path / "empty")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(CheckpointError, match=r"is a file, not a folder\nhint: .*clearformer import"):
        find(tmp_path / "model.gguf")
