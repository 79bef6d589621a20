"""Vocabularies as BERT, GPT-2 and RoBERTa were published, held against transformers' tokenizers of the same files."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BertTokenizerFast, GPT2TokenizerFast, RobertaTokenizerFast

from clearformer.errors import TokenizerError
from clearformer.text import Tokenizer

VOCABS = Path(__file__).parents[2].parent / "shared" / "data" / "tokenizer-vocabs"
published = pytest.mark.skipif(not VOCABS.exists(), reason="needs ../shared/data/tokenizer-vocabs")

TEXTS = [
    "The Café’s naïve cat didn't sit, it SAT!",
    "  two  spaces\n\nand\tlines ",
    "日本語 and 中文, எழுத்து बिल्ली 🙂🏽",
    "don't they're I'll 1234.56 $9,000 <b>html</b>",
    "a" * 211,
    "control\x00\x07\u200b\ufeff\u2028 characters \ufffd",
    "",
    "ǅ İstanbul ß ﬁ",
]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=53)
PIECES = [
    "the",
    "cat",
    "##s",
    "sat",
    "a",
    "##b",
    "caf",
    "##e",
    "##é",
    ",",
    "!",
    "T",
    "##he",
    "猫",
    "do",
    "not",
    "'",
    "n",
]


def bert(folder: Path, extra: tuple[str, ...] = (), **config: Any) -> Tokenizer:
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *extra, *(p for p in PIECES if extra or p == p.lower())]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.from_folder(folder)


def gpt2(folder: Path, special: list[str], **config: Any) -> Tokenizer:
    merges = ["t h", "th e", "Ġ the", "Ġ c", "a t", "Ġc at", "Ċ Ċ"]
    entries = [*special, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges)]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(entries)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.from_folder(folder)


def agree(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    """The same ids alone, framed and in pairs, the same segments, and the same text back."""
    assert ours.encode(texts) == [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]
    backend = theirs.backend_tokenizer
    assert ours.decode(ours.encode(texts)) == [
        backend.decode(ids, skip_special_tokens=True) for ids in ours.encode(texts)
    ]
    if ours.mask_id is None:  # GPT-2's class frames nothing
        return
    pairs, both = texts[::-1], {"return_token_type_ids": True}
    for framed, expected in (
        (ours.encode_with_specials(texts), theirs(texts, **both)),
        (ours.encode_with_specials(texts, pairs), theirs(texts, pairs, **both)),
        (ours.encode_with_specials(texts, pairs, 13), theirs(texts, pairs, truncation=True, max_length=13, **both)),
    ):
        assert framed == (expected["input_ids"], expected["token_type_ids"])
    assert ours.id_of(theirs.mask_token) == ours.mask_id == theirs.mask_token_id
    assert (ours.pad_id, ours.bos_id, ours.eos_id) == (theirs.pad_token_id, theirs.cls_token_id, theirs.sep_token_id)


def their_bert(folder: Path, **fields: Any) -> BertTokenizerFast:
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    return BertTokenizerFast(vocab={token: i for i, token in enumerate(lines)}, **fields)


def theirs_of(kind: Any, folder: Path, vocab: str = "vocab.json", merges: str = "merges.txt", **fields: Any) -> Any:
    rows = (folder / merges).read_text(encoding="utf-8").split("\n")[1:-1]
    table = json.loads((folder / vocab).read_text(encoding="utf-8"))
    return kind(vocab=table, merges=[tuple(row.split(" ")) for row in rows], **fields)


@pytest.mark.parametrize(
    "config", [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
)
def test_a_small_bert(tmp_path: Path, config: dict[str, Any]) -> None:
    agree(bert(tmp_path, **config), their_bert(tmp_path, **config), [*TEXTS, "the cats sat, café 猫猫! The"])


def test_a_vocabulary_with_capitals_is_cased(tmp_path: Path) -> None:
    ours = bert(tmp_path, ("[unused0]",))
    agree(ours, their_bert(tmp_path, do_lower_case=False), [*TEXTS, "The the THE"])
    assert ours.pieces(ours.encode(["The tHe"])[0]) == ["T", "##he", "[UNK]"]


def test_a_small_gpt2(tmp_path: Path) -> None:
    ours = gpt2(tmp_path, ["<|endoftext|>"])
    agree(ours, theirs_of(GPT2TokenizerFast, tmp_path), TEXTS)
    assert ours.decode(ours.encode(TEXTS)) == TEXTS
    assert (ours.pad_id, ours.bos_id, ours.eos_id, ours.unk_id, ours.mask_id) == (0, 0, 0, None, None)
    assert ours.encode_with_specials(["the"]) == ([[0, ours.id_of("the"), 0]], [[0, 0, 0]])
    assert 0 not in ours.encode(["<|endoftext|>"])[0]
    spaced = gpt2(tmp_path, ["<|endoftext|>"], add_prefix_space=True)
    agree(spaced, theirs_of(GPT2TokenizerFast, tmp_path, add_prefix_space=True), TEXTS)


def test_a_small_roberta(tmp_path: Path) -> None:
    ours = gpt2(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    agree(ours, theirs_of(RobertaTokenizerFast, tmp_path), TEXTS)


@published
@pytest.mark.data
def test_the_real_bert(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(gzip.decompress((VOCABS / "bert-base-uncased-vocab.txt.gz").read_bytes()))
    ours, theirs = Tokenizer.from_folder(tmp_path), their_bert(tmp_path)
    assert ours.vocab_size == 30522
    agree(ours, theirs, TEXTS)
    assert ours.encode(["hello world"]) == [[7592, 2088]]

    @settings(max_examples=200, deadline=None)
    @given(ANY_TEXT.filter(lambda text: not any(token in text for token in theirs.all_special_tokens)))
    def any_text(text: str) -> None:
        agree(ours, theirs, [text])

    any_text()


@published
@pytest.mark.data
def test_the_real_gpt2(tmp_path: Path) -> None:
    for name, source in (("encoder.json", "gpt2-encoder.json.gz"), ("vocab.bpe", "gpt2-vocab.bpe.gz")):
        (tmp_path / name).write_bytes(gzip.decompress((VOCABS / source).read_bytes()))
    ours = Tokenizer.from_folder(tmp_path)
    theirs = theirs_of(GPT2TokenizerFast, tmp_path, "encoder.json", "vocab.bpe")
    assert (ours.vocab_size, ours.eos_id) == (50257, 50256)
    assert ours.encode(["hello world"]) == [[31373, 995]]
    agree(ours, theirs, TEXTS)

    @settings(max_examples=200, deadline=None)
    @given(ANY_TEXT.filter(lambda text: "<|endoftext|>" not in text))
    def any_text(text: str) -> None:
        agree(ours, theirs, [text])
        assert ours.decode(ours.encode([text])) == [text]

    any_text()


def test_a_tokenizer_json_comes_first(tmp_path: Path) -> None:
    gpt2(tmp_path, ["<|endoftext|>"]).save(tmp_path / "tokenizer.json")
    (tmp_path / "vocab.json").write_text("{}")
    assert Tokenizer.from_folder(tmp_path).eos_id == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no supported tokenizer.*\nhint: copy the model's tokenizer.json, vocab.txt"),
        ({"vocab.json": "{}"}, "contains no supported tokenizer.*\nhint: copy"),
        ({"spiece.model": "?"}, "contains no supported tokenizer.*\nhint: .*SentencePiece"),
        ({"vocab.txt": "[UNK]\ncat\n"}, r"vocab\.txt has no end-of-text token"),
        ({"vocab.txt": "[SEP]\ncat\n"}, r"vocab\.txt has no token for unknown words"),
        ({"vocab.json": '{"a": 0', "merges.txt": ""}, "cannot be read"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "#version\na b c"}, "cannot be read"),
        ({"vocab.json": '{"cat</w>": 0}', "merges.txt": ""}, "not a byte-level vocabulary"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_folder(tmp_path)
