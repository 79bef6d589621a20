"""Strings to ids and back: a thin face on a Rust tokenizer, which is one tokenizer.json and nothing else.

    lines --train_tokenizer--> Tokenizer --encode--> ids --decode--> normalised text

What a model must know of it is here: the size of the vocabulary and the ids of four special tokens.
How each kind cuts text into pieces is in `tokenizers/`, one file per kind.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, dropwhile
from pathlib import Path
from random import Random
from typing import ClassVar, Self

import tokenizers
from pydantic import Field, field_validator, model_validator

from clearformer import registry
from clearformer.config import Config
from clearformer.errors import TokenizerError, suggest
from clearformer.text.normalize import Form, clean, encodable

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""In this order, hence with ids 0 to 3, in every tokenizer that we train."""
USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<bos>", "<s>", "[CLS]", "<|startoftext|>"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>"),
    "unk": ("<unk>", "[UNK]"),
}
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*PRINTABLE}))
}
"""How byte-level files write bytes as characters, since GPT-2: visible ones as themselves, the rest from U+0100 on."""
SAMPLE = 1_000_000  # lines read in full by training; see `thin`
UPPER_BOUND_KINDS = ("char", "word")  # the text decides how many entries there are, `vocab_size` only limits them


class TextConfig(Config):
    """How text becomes ids: the `[text]` table of a recipe."""

    kind: str = Field(default="bpe", description="char, word, bpe, byte-bpe, wordpiece or unigram")
    vocab_size: int = Field(
        default=8000, gt=4, description="entries, the four special tokens included; an upper bound for char and word"
    )
    lowercase: bool = Field(default=False, description="fold case; decoding cannot bring it back")
    normalization: Form = Field(
        default="NFC", description="Unicode form: NFC, or NFKC which also folds ligatures, widths and circled digits"
    )
    min_frequency: int = Field(
        default=2, ge=1, description="a word, or a pair to merge, that occurs less often is ignored; not for unigram"
    )
    joiner: str | None = Field(
        default=None,
        min_length=1,
        description='for kind "word" on text split beforehand: "@@" glues "ein@@ es" into "eines" when decoding',
    )
    shared: bool = Field(default=True, description="one vocabulary for both languages of a parallel corpus")
    strict: bool = Field(default=True, description="refuse a vocab_size that the text cannot fill; else take less")
    file: Path | None = Field(default=None, description="an existing tokenizer.json to use instead of training one")

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in registry.names("tokenizer"):
            raise ValueError(f"no such tokenizer; {suggest(kind, registry.names('tokenizer'))}")
        return kind

    @model_validator(mode="after")
    def _joins_words_only(self) -> Self:
        if self.joiner is not None and self.kind != "word":
            raise ValueError(f'`joiner` goes with kind = "word", not with "{self.kind}"')
        return self


class Tokenizer:
    """A tokenizer.json at work, ours or another's.

    Text never becomes a special token: a line that contains "<eos>" is encoded as those five characters, or as
    <unk> where the vocabulary cannot spell them. Hugging Face's classes differ in this and read it as the token.
    """

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS

    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int
    vocab_size: int
    """The largest id plus one: what an embedding needs, even where a foreign file leaves some ids unused."""

    def __init__(self, json_text: str, where: str = "this text") -> None:
        """From the content of a tokenizer.json; `where` names it in an error."""
        try:
            rust = tokenizers.Tokenizer.from_str(json_text)
        except Exception as error:  # the Rust library raises nothing more precise
            raise TokenizerError(
                f"{where} is not a tokenizer.json: {error}", "train one, or copy the file again"
            ) from None
        vocab = rust.get_vocab()
        names = {role: name for role, usual in USUAL_NAMES.items() for name in reversed(usual) if name in vocab}
        if missing := [role for role in USUAL_NAMES if role not in names]:
            hint = "; ".join(f"{role} is looked for as {', '.join(USUAL_NAMES[role])}" for role in missing)
            raise TokenizerError(f"{where} has no {' and no '.join(missing)} token", hint)

        rust.add_special_tokens(list(names.values()))  # marks them; they keep their ids
        rust.encode_special_tokens = True  # do not look for them in text
        rust.no_padding()
        rust.no_truncation()
        self._rust, self._json = rust, json_text
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = (vocab[names[role]] for role in USUAL_NAMES)
        self.vocab_size = 1 + max(vocab.values())
        self._added = rust.get_added_tokens_decoder()  # id -> AddedToken
        self._reserved = {token_id for token_id, token in self._added.items() if token.special} - {self.unk_id}
        self._is_byte_level = "ByteLevel" in str(json.loads(json_text).get("decoder"))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """One list of ids per text, without special tokens, on all the cores that Rust finds."""
        batch = self._rust.encode_batch_fast([encodable(text) for text in texts], add_special_tokens=False)
        return [self._ordinary(encoding.ids) for encoding in batch]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of one text and, for each, the (start, end) of its characters in `text` before normalisation.

        A piece that begins a word may include the space before it.
        """
        encoding = self._rust.encode(encodable(text), add_special_tokens=False)
        return self._ordinary(encoding.ids), encoding.offsets

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as readable text, for pictures: ▁ is a space, ⟨e0a4⟩ are bytes that are not whole characters."""
        return [self._readable(token_id) for token_id in ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """One text per list of ids. Special tokens are skipped, <unk> too; `pieces` shows them."""
        return list(self._rust.decode_batch([list(row) for row in ids], skip_special_tokens=True))

    def to_json(self) -> str:
        """The content of tokenizer.json, which `PreTrainedTokenizerFast` of Hugging Face reads as well."""
        return self._json

    def save(self, path: Path) -> None:
        Path(path).write_text(self._json, encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer.json, ours or another's whose special tokens have one of the usual names."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise TokenizerError(
                f"{path}: cannot read a tokenizer there: {reason}", "give the path of a tokenizer.json"
            ) from None
        return cls(text, where=str(path))

    def fingerprint(self) -> str:
        """The first 16 digits of `sha256sum tokenizer.json`: equal fingerprints, equal ids for every text."""
        return sha256(self._json.encode()).hexdigest()[:16]

    def _ordinary(self, ids: list[int]) -> list[int]:
        """Word-level and unigram models can find a special token's name in their vocabulary; as text it is unknown."""
        return ids if self._reserved.isdisjoint(ids) else [self.unk_id if i in self._reserved else i for i in ids]

    def _readable(self, token_id: int) -> str:
        token = self._rust.id_to_token(token_id)
        if token is None:
            return f"⟨{token_id}?⟩"
        if not self._is_byte_level or token_id in self._added:
            return token.replace(" ", "▁")
        spelt = bytes(BYTE_OF[char] for char in token)
        try:
            return spelt.decode().replace(" ", "▁")
        except UnicodeDecodeError:
            return f"⟨{spelt.hex()}⟩"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._json,)  # a pickled Rust tokenizer forgets `encode_special_tokens`


def train_tokenizer(lines: Iterable[str], config: TextConfig, progress: bool = False) -> Tokenizer:
    """Learn a vocabulary from a stream of lines, read once and never held whole.

    The same lines in the same order give the same tokenizer. Memory grows with the number of distinct words, which
    `thin` bounds. If `config` is strict, text that cannot fill its `vocab_size` is an error, not a smaller result.
    """
    stream = dropwhile(lambda line: not clean(line), map(encodable, thin(lines)))
    if (first := next(stream, None)) is None:
        raise TokenizerError("there is no text to train a tokenizer on", "give at least one line that is not blank")
    rust = registry.resolve("tokenizer", config.kind)(chain([first], stream), config, progress)
    tokenizer = Tokenizer(rust.to_str(pretty=True))
    # A percent of slack: unigram prunes in rounds and may stop a few entries short.
    if config.strict and config.kind not in UPPER_BOUND_KINDS and tokenizer.vocab_size < 0.99 * config.vocab_size:
        raise TokenizerError(
            f"the text allows {tokenizer.vocab_size} {config.kind} entries, not the {config.vocab_size} asked for",
            f"ask for vocab_size = {tokenizer.vocab_size} at most, or give more text",
        )
    return tokenizer


def thin(lines: Iterable[str], full: int = SAMPLE) -> Iterator[str]:
    """Every line of a corpus of up to `full` lines; beyond, line i with probability full / i.

    So N lines leave about full (1 + ln(N / full)) of them, 3.3 million of 10, spread over the whole corpus whatever
    its length and order. The draw is seeded: it depends on line numbers only.
    """
    draw = Random(0).random
    return (line for i, line in enumerate(lines, start=1) if i <= full or draw() * i < full)
