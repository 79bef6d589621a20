"""The special tokens of the families, as their files hold them."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clearformer.errors import TokenizerError
from clearformer.text import Tokenizer

CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def save(folder: Path, special: list[str], mark: bool = True, ordinary: tuple[str, ...] = ("cat", "dog")) -> Path:
    """A word-level tokenizer.json whose ids 0, 1, 2 ... are `special`, then the ordinary words."""
    vocab = {word: i for i, word in enumerate([*special, *ordinary])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=special[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if mark:
        tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def roles(tokenizer: Tokenizer) -> tuple[int, int, int, int | None, int | None]:
    return tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.mask_id


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize(
    ("special", "expected"),
    [
        (["<|endoftext|>"], (0, 0, 0, None, None)),  # GPT-2
        (["<pad>", "</s>", "<unk>"], (0, 0, 1, 2, None)),  # T5: decoding starts with padding
        (["<unk>", "<s>", "</s>"], (2, 1, 2, 0, None)),  # Llama 2: padding is eos
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], (0, 2, 3, 1, 4)),  # BERT
        (["<s>", "<pad>", "</s>", "<unk>", "<mask>"], (1, 0, 2, 3, 4)),  # RoBERTa
        (["<|begin_of_text|>", "<|end_of_text|>"], (1, 0, 1, None, None)),  # Llama 3
        (CHAT, (0, 0, 0, None, None)),  # SmolLM2, when nothing says which of the two is the end
    ],
)
def test_the_families(tmp_path: Path, special: list[str], expected: tuple, mark: bool) -> None:
    assert roles(Tokenizer.load(save(tmp_path, special, mark))) == expected


def test_only_an_end_is_indispensable(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json has no end-of-text token.*\nhint: .*</s>, \[SEP\]"):
        Tokenizer.load(save(tmp_path, ["<pad>", "<s>", "<unk>"]))


def test_an_ordinary_word_that_looks_special_has_no_role(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(save(tmp_path, ["<|endoftext|>"], ordinary=("cat", "</s>", "<mask>")))
    assert roles(tokenizer) == (0, 0, 0, None, None)
    assert tokenizer.encode(["cat </s>"]) == [[1, 2]]


INSTRUCT: dict[str, Any] = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "lstrip": False}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": INSTRUCT}, (2, 1, 2, None, None)),
        ({"special_tokens_map.json": {**INSTRUCT, "pad_token": "<|endoftext|>"}}, (0, 1, 2, None, None)),
        ({"tokenizer_config.json": INSTRUCT, "special_tokens_map.json": {"eos_token": CHAT[0]}}, (2, 1, 2, None, None)),
        ({"tokenizer_config.json": {"cls_token": CHAT[1], "sep_token": CHAT[2]}}, (2, 1, 2, None, None)),
        ({"tokenizer_config.json": {"eos_token": CHAT[2], "sep_token": CHAT[1]}}, (2, 2, 2, None, None)),
        ({"tokenizer_config.json": {**INSTRUCT, "unk_token": CHAT[0]}}, (2, 1, 2, 0, None)),
        ({"tokenizer_config.json": {"mask_token": CHAT[1], "pad_token": "<absent>"}}, (0, 0, 0, None, 1)),
        ({"tokenizer_config.json": {"eos_token": None, "unk_token": CHAT[0]}}, (0, 0, 0, None, None)),
    ],
)
def test_what_lies_beside_the_file_wins(tmp_path: Path, files: dict[str, Any], expected: tuple) -> None:
    path = save(tmp_path, CHAT)
    for name, table in files.items():
        (tmp_path / name).write_text(json.dumps(table))
    assert roles(Tokenizer.load(path)) == expected


def test_roles_travel_with_the_file_and_others_still_read_it(tmp_path: Path) -> None:
    path = save(tmp_path, CHAT)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(INSTRUCT))
    tokenizer = Tokenizer.load(path)
    (tmp_path / "copy").mkdir()
    tokenizer.save(copy := tmp_path / "copy" / "tokenizer.json")
    again = Tokenizer.load(copy)
    assert roles(again) == roles(pickle.loads(pickle.dumps(tokenizer))) == (2, 1, 2, None, None)
    assert again.fingerprint() == tokenizer.fingerprint() != Tokenizer(path.read_text()).fingerprint()
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(copy))
    assert theirs("dog cat")["input_ids"] == again.encode(["dog cat"])[0]


def test_what_is_usual_is_not_written_down(tmp_path: Path) -> None:
    path = save(tmp_path, ["<unk>", "<s>", "</s>"])
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}')
    assert Tokenizer.load(path).to_json() == path.read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"eos_token": ', "\ud800"])
def test_a_side_file_that_is_none(tmp_path: Path, content: str) -> None:
    path = save(tmp_path, CHAT)
    (tmp_path / "tokenizer_config.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json.*\nhint: copy"):
        Tokenizer.load(path)
