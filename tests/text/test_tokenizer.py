"""What holds for every kind of tokenizer, and for files made by others."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from clearformer.errors import ConfigError, TokenizerError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.text.tokenizer import thin, truncated_lengths
from clearformer.text.tokenizers import TOKENIZERS

KINDS = TOKENIZERS.names()
LINES = [
    "The cat sat on the mat, and the dog (a big one) sat on the cat.",
    "Don't the cats like the big dogs? The dogs don't!",
    "Die Katze saß auf der Matte, und der Hund saß auf der Katze.",
    "एक बिल्ली चटाई पर बैठी है। एक कुत्ता बिल्ली पर बैठा है।",
    "In 1984 there were 23 cats and 17 dogs.",
]
TRICKY = ["", "  The\u00a0cat ", "cafe\u0301 <eos><pad>", "बिल्ली 🙂", "a\x00b", "T▁h", "\u3000", "dogs!\ndogs"]


def train(kind: str, **fields: object) -> Tokenizer:
    fields = {"vocab_size": 307, "min_frequency": 1, "strict": False, **fields}
    return train_tokenizer(LINES, TextConfig.parse({"kind": kind, **fields}, "test"))


TRAINED = {kind: train(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first(kind: str) -> None:
    tokenizer = TRAINED[kind]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.pieces(range(4)) == list(Tokenizer.SPECIALS)
    assert 4 < tokenizer.vocab_size <= 307


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_gives_the_text_back(kind: str) -> None:
    assert TRAINED[kind].decode(TRAINED[kind].encode(LINES)) == LINES


@pytest.mark.parametrize("kind", KINDS)
def test_text_never_becomes_a_special_token(kind: str) -> None:
    for text in ("<eos>", "a<pad>b <bos>", "<eos> <eos>"):
        assert not {0, 1, 2} & {*TRAINED[kind].encode([text])[0]}
    learned_from_it = train_tokenizer(
        ["<eos> <unk> <pad> the"] * 5, TextConfig(kind=kind, vocab_size=307, strict=False)
    )
    assert learned_from_it.eos_id == 2
    assert not {0, 1, 2} & {*learned_from_it.encode(["<eos> <pad> the"])[0]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_texts_one_by_one(kind: str) -> None:
    tokenizer = TRAINED[kind]
    assert tokenizer.encode(TRICKY) == [tokenizer.encode([text])[0] for text in TRICKY]
    assert tokenizer.encode(TRICKY) == [tokenizer.encode_with_offsets(text)[0] for text in TRICKY]
    assert tokenizer.encode([]) == []
    assert tokenizer.encode(["", "\u3000"]) == [[], []]


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_point_into_the_raw_text(kind: str) -> None:
    text = "  The   cat"
    _, offsets = TRAINED[kind].encode_with_offsets(text)
    assert offsets[0][0] == 2
    assert offsets[-1][1] == len(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_decode_takes_any_ids(kind: str, data: st.DataObject) -> None:
    tokenizer = TRAINED[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    assert len(tokenizer.decode([ids, []])) == 2
    assert len(tokenizer.pieces(ids)) == len(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_only_an_odd_character(kind: str) -> None:
    assert TRAINED[kind].encode(["cat \ud83d"]) == TRAINED[kind].encode(["cat \ufffd"])
    assert train_tokenizer(["cat \ud83d cat"], TextConfig(kind=kind, vocab_size=307, strict=False)).vocab_size > 4


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_here_and_by_hugging_face(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer = train(kind, lowercase=True, normalization="NFKC")
    tokenizer.save(path)
    again, pickled = Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(path))
    raw = [*LINES, "\ufeffThe\tﬁne CAT\u00a0sat\x07 ."]
    expected = tokenizer.encode(raw)
    assert again.encode(raw) == pickled.encode(raw) == expected
    assert again.encode(TRICKY) == pickled.encode(TRICKY) == tokenizer.encode(TRICKY)
    assert theirs(raw, add_special_tokens=False)["input_ids"] == expected
    assert [theirs.decode(ids, skip_special_tokens=True) for ids in expected] == tokenizer.decode(expected)
    assert again.fingerprint() == pickled.fingerprint() == tokenizer.fingerprint()


def test_fingerprints_differ() -> None:
    prints = {tokenizer.fingerprint() for tokenizer in [*TRAINED.values(), train("bpe", lowercase=True)]}
    assert len(prints) == len(KINDS) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_in_another_process(kind: str) -> None:
    """Hash tables are seeded per process, so a repetition in this one would prove less."""
    program = (
        "import sys, json; from clearformer.text import *;"
        "lines, kind = json.loads(sys.argv[1]), sys.argv[2];"
        "config = TextConfig(kind=kind, vocab_size=307, min_frequency=1, strict=False);"
        "print(train_tokenizer(lines, config).fingerprint())"
    )
    command = [sys.executable, "-c", program, json.dumps(LINES), kind]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert printed == TRAINED[kind].fingerprint()


@pytest.mark.parametrize("lines", [[], ["", " \t\n", "\x00\u3000"]])
def test_no_text_to_train_on(lines: list[str]) -> None:
    with pytest.raises(TokenizerError, match="no text"):
        train_tokenizer(lines, TextConfig())


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram"])
def test_strict_training_says_how_many_entries_the_text_allows(kind: str) -> None:
    asked = TextConfig(kind=kind, vocab_size=5003)
    allowed = train_tokenizer(LINES, asked.changed(strict=False)).vocab_size
    with pytest.raises(TokenizerError, match=f"= 5003: .* only {allowed} tokens\nhint: .* to at most {allowed},"):
        train_tokenizer(LINES, asked)
    assert train_tokenizer(LINES, asked.changed(vocab_size=allowed)).vocab_size <= allowed


@pytest.mark.parametrize("kind", ["char", "word"])
def test_the_size_is_only_a_bound_for_char_and_word(kind: str) -> None:
    assert train_tokenizer(LINES, TextConfig(kind=kind, vocab_size=5003)).vocab_size < 307
    assert train(kind, vocab_size=13).vocab_size == 13


def test_the_stream_is_read_once_and_its_errors_pass_through() -> None:
    def broken() -> Iterator[str]:
        yield "one line"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_tokenizer(broken(), TextConfig(kind="unigram"))
    assert train_tokenizer(iter(LINES), TextConfig(vocab_size=97)).vocab_size == 97


def test_thin_reads_all_of_a_short_corpus_and_the_whole_length_of_a_long_one() -> None:
    lines = [str(i) for i in range(1, 10_007)]
    kept = list(thin(lines, full=101))
    assert list(thin(lines[:101], full=101)) == lines[:101] == kept[:101]
    assert 450 < len(kept) < 680  # 101 (1 + ln(10006 / 101)) = 565
    assert sum(int(line) > 5000 for line in kept) > 40  # 101 ln 2 = 70
    assert kept == list(thin(lines, full=101))


def foreign(names: list[str]) -> tokenizers.Tokenizer:
    vocab = {word: i for i, word in enumerate(["cat", *names, "dog"])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=names[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


@pytest.mark.parametrize(
    "names",
    [
        ["[PAD]", "[CLS]", "[SEP]", "[UNK]"],
        ["<pad>", "<s>", "</s>", "<unk>"],
        ["<pad>", "<|startoftext|>", "<|endoftext|>", "<unk>"],
    ],
)
def test_the_file_of_another_is_understood(names: list[str], tmp_path: Path) -> None:
    theirs = foreign(names)
    theirs.enable_padding(length=11)
    theirs.enable_truncation(1)
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (1, 2, 3, 4)
    assert tokenizer.encode([f"cat {names[2]} dog"]) == [[0, 4, 5]]
    assert tokenizer.decode([[2, 0, 5, 3, 1]]) == ["cat dog"]
    tokenizer.save(tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_text() == (tmp_path / "tokenizer.json").read_text()


def test_vocab_size_covers_the_largest_id(tmp_path: Path) -> None:
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "cat": 16}
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="<unk>")).to_str())
    assert tokenizer.vocab_size == 17
    assert tokenizer.pieces([16, 5]) == ["cat", "⟨5?⟩"]


@pytest.mark.parametrize("kind", KINDS)
def test_framed_by_hand_where_the_file_says_nothing(kind: str) -> None:
    tokenizer = TRAINED[kind]
    (a,), (b,) = tokenizer.encode(["the cat"]), tokenizer.encode(["a dog!"])
    assert tokenizer.encode_with_specials(["the cat"]) == ([[1, *a, 2]], [[0] * (len(a) + 2)])
    assert tokenizer.encode_with_specials(["the cat"], ["a dog!"]) == (
        [[1, *a, 2, *b, 2]],
        [[0] * (len(a) + 2) + [1] * (len(b) + 1)],
    )
    assert tokenizer.encode_with_specials([]) == ([], [])
    with pytest.raises(ValueError, match="shorter"):
        tokenizer.encode_with_specials(["the cat"], [])


def test_a_frame_is_the_files_own_and_text_cannot_forge_it() -> None:
    theirs = foreign(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    theirs.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t5 = foreign(["<pad>", "</s>", "<unk>"])
    t5.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    rows, _ = Tokenizer(t5.to_str()).encode_with_specials(["cat </s>", "dog"], ["cat", ""])
    assert rows == [[0, 3, 2, 0, 2], [4, 2, 2]]
    tokenizer = Tokenizer(theirs.to_str())
    assert tokenizer.encode_with_specials(["cat [SEP] dog", "dog"], ["dog", "[CLS]"]) == (
        [[2, 0, 4, 5, 3, 5, 3], [2, 5, 3, 4, 3]],
        [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1]],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_loses_its_ends_but_not_its_frame(kind: str) -> None:
    tokenizer = TRAINED[kind]
    texts, pairs = LINES[:3], ["the cat", LINES[3], ""]
    for max_tokens in (5, 11, 17, 401):
        cut, segments = tokenizer.encode_with_specials(texts, pairs, max_tokens)
        assert max(map(len, cut)) <= max_tokens
        assert [row.count(2) for row in cut] == [2, 2, 2]
        for row, segment, a, b in zip(cut, segments, tokenizer.encode(texts), tokenizer.encode(pairs)):
            n = row.index(2)
            assert (row[0], row[-1], row[1:n], row[n + 1 : -1]) == (1, 2, a[: n - 1], b[: len(row) - n - 2])
            assert segment == [0] * (n + 1) + [1] * (len(row) - n - 1)
    whole = tokenizer.encode_with_specials(texts, pairs)
    assert whole == tokenizer.encode_with_specials(texts, pairs, 401)  # nothing stays behind
    with pytest.raises(TokenizerError, match="leaves no token for text besides 3 special tokens\nhint: set max_tokens"):
        tokenizer.encode_with_specials(texts, pairs, 3)


def twin(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The Rust tokenizer inside, free to be changed."""
    rust = tokenizers.Tokenizer.from_str(tokenizer._rust.to_str())
    rust.encode_special_tokens = True
    return rust


def frames() -> dict[str, Tokenizer]:
    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    bert, roberta, t5, swapped = foreign(names), foreign(names), foreign(["<pad>", "</s>", "<unk>"]), foreign(names)
    bert.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    roberta.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    t5.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 2)]
    )
    swapped.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $B:1 [SEP] $A", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made = {"bert": bert, "roberta": roberta, "t5": t5, "swapped": swapped, "ours": foreign(names)}
    return {name: Tokenizer(rust.to_str()) for name, rust in made.items()}


@pytest.mark.skipif(version("tokenizers") < "0.23", reason="cuts two texts as long the other way round")
@pytest.mark.parametrize("name", frames())
def test_cutting_is_longest_first_truncation_by_rust(name: str) -> None:
    """Every pair of lengths in every room, odd ones too: of two texts as long the second keeps one more token."""
    tokenizer = frames()[name]
    rust, words = twin(tokenizer), ["cat", "dog", "dog", "cat", "dog", "cat", "cat"]
    texts = [" ".join(words[:n]) for n in range(8)]
    pairs = [(a, b) for a in texts for b in (" ".join(reversed(text.split())) for text in texts)]
    inputs: dict[str, list] = {"single": texts, "pair": pairs}
    for kind, rows in inputs.items():
        frame = rust.num_special_tokens_to_add(kind == "pair")
        for max_tokens in range(frame + 1, frame + 17):
            rust.enable_truncation(max_tokens)
            expected = [(row.ids, row.type_ids) for row in rust.encode_batch(rows)]
            told = [rows] if kind == "single" else [[a for a, _ in rows], [b for _, b in rows]]
            assert list(zip(*tokenizer.encode_with_specials(*told, max_tokens=max_tokens))) == expected


def test_the_longer_text_keeps_the_odd_token() -> None:
    assert [truncated_lengths(a, b, 7) for a, b in ((5, 5), (9, 8), (8, 9), (2, 9), (9, 2), (3, 4), (9, 0))] == [
        (3, 4), (4, 3), (3, 4), (2, 5), (5, 2), (3, 4), (7, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_marked_text_is_what_rust_finds_special_tokens_in(kind: str) -> None:
    tokenizer = train(kind, vocab_size=311, extra=("[MASK]", "<turn>"))
    rust = twin(tokenizer)
    rust.encode_special_tokens = False
    for text in ("<turn>the cat<eos>", "<turn> the cat <eos> ", "the [MASK]<unk>", "cat", "", "\ud83d<turn>", *LINES):
        whole = text.replace("\ud83d", "\ufffd")
        assert tokenizer.encode_marked(text) == rust.encode(whole, add_special_tokens=False).ids
    assert tokenizer.encode_marked("<turn>cat<eos>")[0] == tokenizer.id_of("<turn>")
    assert tokenizer.eos_id not in tokenizer.encode(["<turn>cat<eos>"])[0]
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.encode_marked("<turn>cat<eos>") == tokenizer.encode_marked("<turn>cat<eos>")


def test_threads_share_a_tokenizer() -> None:
    """Each method in many threads at once says what it says alone."""
    tokenizer = train("bpe", extra=("<turn>",))
    texts, pairs = LINES * 7, LINES[::-1] * 7
    (ids,) = tokenizer.encode([LINES[0]])

    def streamed() -> list[str | None]:
        stream = tokenizer.stream()
        return [stream.step(token_id) for token_id in ids]

    jobs: list[Callable[[], object]] = [
        *(partial(tokenizer.encode_with_specials, texts, None, n) for n in (None, 3, 5, 11, 401)),
        *(partial(tokenizer.encode_with_specials, texts, pairs, n) for n in (None, 4, 13, 401)),
        partial(tokenizer.encode, [*texts, "<turn> the cat <eos>"]),
        partial(tokenizer.encode_marked, "<turn>the cat<eos> the dog<turn>"),
        partial(tokenizer.encode_with_offsets, "<turn> the cat <eos>"),
        partial(tokenizer.decode, [ids, ids[:5]]),
        partial(tokenizer.specials_around, True),
        streamed,
    ]
    expected = [job() for job in jobs]
    order = Random(0).choices(range(len(jobs)), k=600)
    with ThreadPoolExecutor(16) as pool:
        for i, found in zip(order, pool.map(lambda i: jobs[i](), order)):
            assert found == expected[i]


def test_what_cannot_be_unknown_is_left_out() -> None:
    vocab = {"<|endoftext|>": 0, "cat": 1, "dog": 2}
    theirs = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="dog"))
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(theirs.to_str())
    assert tokenizer.encode(["cat <|endoftext|> dog"]) == [[1, 2]]
    assert tokenizer.encode_with_offsets("cat <|endoftext|> dog") == ([1, 2], [(0, 3), (18, 21)])
    assert tokenizer.encode_with_specials(["<|endoftext|> cat"]) == ([[0, 1, 0]], [[0, 0, 0]])


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_of_ones_own(kind: str) -> None:
    extra = ("[MASK]", "[SEP]", "<extra_id_0>", "a b")
    tokenizer = train(kind, vocab_size=311, extra=extra)
    assert [tokenizer.id_of(token) for token in (*Tokenizer.SPECIALS, *extra)] == [*range(8)]
    assert (tokenizer.eos_id, tokenizer.mask_id) == (2, 4)
    assert not {*range(8)} - {3} & {*tokenizer.encode(["the [MASK] <extra_id_0> cat a b"])[0]}
    assert tokenizer.decode([[4, *tokenizer.encode(["the cat"])[0], 5, 6]]) == ["the cat"]
    assert tokenizer.decode(tokenizer.encode(LINES)) == LINES
    assert pickle.loads(pickle.dumps(tokenizer)).mask_id == 4
    assert train(kind, vocab_size=311).mask_id is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_by_its_name(kind: str) -> None:
    assert [TRAINED[kind].id_of(name) for name in Tokenizer.SPECIALS] == [0, 1, 2, 3]
    with pytest.raises(TokenizerError, match="no token `<boss>`\nhint: did you mean `<bos>`"):
        TRAINED[kind].id_of("<boss>")


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_adds_up_to_the_text(kind: str) -> None:
    tokenizer = TRAINED[kind]
    for ids in tokenizer.encode([line for line in LINES if kind != "wordpiece" or "'" not in line]):
        stream = tokenizer.stream()
        steps = [stream.step(token_id) for token_id in [tokenizer.bos_id, *ids, tokenizer.eos_id]]
        assert "".join(step or "" for step in steps) == tokenizer.decode([ids])[0]
        assert len([step for step in steps if step]) > 1


def test_a_stream_waits_for_whole_characters() -> None:
    bare = train("byte-bpe", vocab_size=260)
    (ids,) = bare.encode(["é🙂"])
    stream = bare.stream()
    assert [stream.step(token_id) for token_id in ids] == [None, None, "é", None, None, None, "🙂"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_stream_takes_any_ids(kind: str, data: st.DataObject) -> None:
    tokenizer = TRAINED[kind]
    stream = tokenizer.stream()
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    spoken = "".join(stream.step(token_id) or "" for token_id in ids)
    if kind != "wordpiece":  # which joins words when their neighbours come
        assert tokenizer.decode([ids])[0].startswith(spoken)


@pytest.mark.parametrize("content", [b"", b'{"version": "1.0", "trunc', b'{"a": 1}', b"[]", b"\xff\xfe", b"not json"])
def test_a_file_that_is_no_tokenizer(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_truncated_or_absent_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(TokenizerError, match="No such file"):
        Tokenizer.load(path)
    TRAINED["bpe"].save(path)
    path.write_text(path.read_text()[:-101])
    with pytest.raises(TokenizerError, match=r"is not a valid tokenizer\.json"):
        Tokenizer.load(path)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="did you mean `unigram`"):
        TextConfig.parse({"kind": "unigrams"}, "recipe.toml: [text]")
    with pytest.raises(ConfigError, match="joiner"):
        TextConfig.parse({"kind": "bpe", "joiner": "@@"}, "recipe.toml: [text]")
    with pytest.raises(ConfigError, match="vocab_size"):
        TextConfig.parse({"vocab_size": 4}, "recipe.toml: [text]")
    with pytest.raises(ConfigError, match='"keep" requires kind = "char" or "byte-bpe", not "bpe"'):
        TextConfig.parse({"whitespace": "keep"}, "recipe.toml: [text]")
    for extra in (["<eos>"], ["a", "a"], [""]):
        with pytest.raises(ConfigError, match="`extra` must list distinct tokens"):
            TextConfig.parse({"extra": extra}, "recipe.toml: [text]")
    with pytest.raises(ConfigError, match="`vocab_size` = 6 leaves no token for text: there are 6 special tokens"):
        TextConfig.parse({"vocab_size": 6, "extra": ["[MASK]", "[SEP]"]}, "recipe.toml: [text]")


@pytest.mark.parametrize("before", ["", "<s> "])
def test_what_a_file_puts_before_a_text_is_found_without_knowing_its_words(before: str) -> None:
    """Numbers alone, and no name for what is unknown: even "a" cannot be encoded."""
    rust = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "7": 2, "8": 3}, unk_token="<unk>"))
    rust.add_special_tokens(["<s>", "</s>"])
    rust.post_processor = processors.TemplateProcessing(
        single=f"{before}$A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    assert Tokenizer(rust.to_str()).opening == ([0] if before else [])


def test_the_beginning_can_be_another_token() -> None:
    tokenizer = train_tokenizer(["a b c"], TextConfig(kind="word", vocab_size=7, min_frequency=1))
    other = tokenizer.with_bos(tokenizer.pad_id)
    assert (other.bos_id, other.eos_id, other.pad_id) == (tokenizer.pad_id, tokenizer.eos_id, tokenizer.pad_id)
    assert Tokenizer(other.to_json()).bos_id == tokenizer.pad_id  # a copy of the file says it too
    assert other.encode(["a b"]) == tokenizer.encode(["a b"])
    assert tokenizer.with_bos(tokenizer.bos_id) is tokenizer
    for absent in (99, -1, 2**40):
        with pytest.raises(TokenizerError, match=f"no token with the id {absent}"):
            tokenizer.with_bos(absent)


def test_the_frame_is_what_framing_adds() -> None:
    ours = train_tokenizer(["a b c"], TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))
    assert ours.specials_around() == [[ours.bos_id], [ours.eos_id]]
    assert ours.specials_around(is_pair=True) == [[ours.bos_id], [ours.eos_id], [ours.eos_id]]
    assert ours.special_ids == [0, 1, 2, 3, 4]
    before, between, after = ours.specials_around(is_pair=True)
    a, b = ours.encode(["a b", "c"])
    assert ours.encode_with_specials(["a b"], ["c"])[0] == [[*before, *a, *between, *b, *after]]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_continuation_is_decoded_as_by_a_stream(kind: str, data: st.DataObject) -> None:
    tokenizer = TRAINED[kind]
    tokens = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20)
    before, ids = data.draw(tokens), data.draw(tokens)
    stream = tokenizer.stream()
    for token_id in before:
        stream.step(token_id)
    spoken = "".join(stream.step(token_id) or "" for token_id in ids)
    (text,) = tokenizer.continued([before], [ids])
    assert text in (None, spoken)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wordpiece"])
def test_continuations_of_real_text_need_no_stream(kind: str) -> None:
    tokenizer = TRAINED[kind]
    rows = [ids for ids in tokenizer.encode(LINES) if len(ids) > 3]
    before, after = [ids[:3] for ids in rows], [ids[3:] for ids in rows]
    texts = tokenizer.continued(before, after)
    assert sum(text is not None for text in texts) > len(texts) / 2
