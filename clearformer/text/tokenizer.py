"""Strings to ids and back: a thin face on a Rust tokenizer, which is one tokenizer.json and nothing else.

    lines --train_tokenizer--> Tokenizer --encode--> ids --decode--> normalised text

What a model must know of it is here: the size of the vocabulary and the ids of a few special tokens, which `roles.py`
finds in the files of others. How each kind cuts text into pieces is in `tokenizers/`, one file per kind.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain, compress, dropwhile
from pathlib import Path
from random import Random
from typing import ClassVar, Self

import tokenizers
from tokenizers import processors
from tokenizers.decoders import DecodeStream

from clearformer.errors import TokenizerError, suggest
from clearformer.text.config import SPECIALS, TextConfig
from clearformer.text.normalize import clean, encodable
from clearformer.text.published import build_from
from clearformer.text.roles import named_beside, settle, usual_roles
from clearformer.text.tokenizers import TOKENIZERS

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*PRINTABLE}))
}
"""How byte-level files write bytes as characters, since GPT-2: visible ones as themselves, the rest from U+0100 on."""
VISIBLE = str.maketrans({" ": "▁", "\n": "↵", "\t": "⇥"})
SAMPLE = 1_000_000  # lines read in full by training; see `thin`
UPPER_BOUND_KINDS = ("char", "word")  # the text decides how many entries there are, `vocab_size` only limits them


Rows = list[list[int]]


class Tokenizer:
    """A tokenizer.json at work, ours or another's. Nothing changes it once it is made, so that threads may share it.

    Text never becomes a special token: a line that contains "<eos>" is encoded as those five characters, or as
    <unk> where the vocabulary cannot spell them. Hugging Face's classes differ in this and read it as the token.
    """

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS

    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int | None
    """None where everything can be spelt, so that nothing is unknown."""
    mask_id: int | None
    vocab_size: int
    """The largest id plus one: what an embedding needs, even where a foreign file leaves some ids unused."""
    opening: list[int]
    """What a published file itself puts before every text, such as Llama's BOS; nothing in GPT-2's, nor in ours."""
    is_framed: bool
    """Whether the file itself says what stands around a text."""

    def __init__(self, json_text: str, where: str = "this text", folder: Path | None = None) -> None:
        """From the content of a tokenizer.json; `where` names it in an error.

        Side files in `folder` may name the roles of tokens. Those that the usual names do not tell are written into
        the content, in a corner that other readers pass over, so that a copy of it needs no side files.
        """
        try:
            rust = tokenizers.Tokenizer.from_str(json_text)
        except Exception as error:  # the Rust library raises nothing more precise
            raise TokenizerError(
                f"{where} is not a tokenizer.json: {error}", "train one, or copy the file again"
            ) from None
        content = json.loads(json_text)
        vocab = rust.get_vocab()
        marked = {token.content for token in rust.get_added_tokens_decoder().values() if token.special}
        kept = content["model"].get("roles", {})
        told = usual_roles(vocab, marked) | {role: token for role, token in kept.items() if token in vocab}
        named = told | named_beside(folder, vocab) if folder else told
        roles = settle(named, where)
        if "eos" not in told or roles != settle(told, where):
            content["model"]["roles"] = named
            json_text = json.dumps(content, ensure_ascii=False, indent=2)

        rust.add_special_tokens([token for token in roles if token])  # marks them; they keep their ids
        rust.encode_special_tokens = True  # do not look for them in text
        rust.no_padding()
        rust.no_truncation()
        self._rust, self._json = rust, json_text
        self.pad_id, self.bos_id, self.eos_id = vocab[roles.pad], vocab[roles.bos], vocab[roles.eos]
        self.unk_id = None if roles.unk is None else vocab[roles.unk]
        self.mask_id = None if roles.mask is None else vocab[roles.mask]
        self.vocab_size = 1 + max(vocab.values())
        self._added = rust.get_added_tokens_decoder()  # id -> AddedToken
        self._reserved = {token_id for token_id, token in self._added.items() if token.special} - {self.unk_id}
        self._is_byte_level = "ByteLevel" in str(content.get("decoder"))
        self.opening = opening_of(rust, vocab)
        self.is_framed = rust.num_special_tokens_to_add(False) > 0
        if not self.is_framed:  # the file frames nothing: BOS a EOS, BOS a EOS b EOS
            frame = processors.TemplateProcessing(
                single=[roles.bos, "$A", roles.eos],
                pair=[roles.bos, "$A", roles.eos, "$B:1", f"{roles.eos}:1"],
                special_tokens=[(roles.bos, self.bos_id), (roles.eos, self.eos_id)],
            )
            offsets_only = [rust.post_processor] if rust.post_processor else []
            rust.post_processor = processors.Sequence([*offsets_only, frame])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """One list of ids per text, without special tokens, on all the cores that Rust finds."""
        batch = self._rust.encode_batch_fast([encodable(text) for text in texts], add_special_tokens=False)
        return [self._ordinary(encoding.ids)[0] for encoding in batch]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of one text and, for each, the (start, end) of its characters in `text` before normalisation.

        A piece that begins a word may include the space before it.
        """
        encoding = self._rust.encode(encodable(text), add_special_tokens=False)
        ids, offsets = self._ordinary(encoding.ids, encoding.offsets)
        return ids, offsets

    def framed(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_tokens: int | None = None
    ) -> tuple[Rows, Rows]:
        """Each text, or text a with its pair b, between the special tokens that the model wants; and their segments.

            BERT     [CLS] a [SEP]      [CLS] a [SEP] b [SEP]       as tokenizer.json says
                       0   0   0          0   0   0   1   1
            ours     BOS a EOS          BOS a EOS b EOS             where it says nothing

        A row longer than `max_tokens` loses the ends of its texts, of the longer one first, never its frame.
        """
        frame = self._rust.num_special_tokens_to_add(pairs is not None)
        if max_tokens is not None and max_tokens <= frame:
            raise TokenizerError(f"max_tokens = {max_tokens} leaves no room for text", f"the frame has {frame} tokens")
        whole = map(encodable, texts)
        inputs = list(whole if pairs is None else zip(whole, map(encodable, pairs), strict=True))
        rows = []
        for row in self._rust.encode_batch_fast(inputs):
            ids, segments, is_frame = row.ids, row.type_ids, row.special_tokens_mask
            if max_tokens is not None and len(ids) > max_tokens:
                cut(row.sequence_ids, max_tokens - frame, ids, segments, is_frame)
            rows.append(self._ordinary(ids, segments, frame=is_frame))
        return [ids for ids, _ in rows], [segments for _, segments in rows]

    @property
    def roles(self) -> dict[str, str]:
        """The token in each role that is filled: pad, bos, eos, unk, mask."""
        ids = {role: getattr(self, f"{role}_id") for role in ("pad", "bos", "eos", "unk", "mask")}
        return {role: str(self._rust.id_to_token(number)) for role, number in ids.items() if number is not None}

    @property
    def specials(self) -> list[str]:
        """Every token that is no text."""
        return [token.content for token in self._added.values() if token.special]

    def begun_by(self, token_id: int) -> Self:
        """The same, but with this token as BOS, as a published decoder may begin with another than its files name."""
        token = self._rust.id_to_token(token_id)
        if token is None:
            raise TokenizerError(f"the vocabulary has no entry {token_id}", "it belongs to another model")
        if token_id == self.bos_id:
            return self
        content = json.loads(self._json)
        content["model"]["roles"] = {**content["model"].get("roles", {}), "bos": token}
        return type(self)(json.dumps(content, ensure_ascii=False, indent=2))

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text in which the names of special tokens mean these tokens, as a conversation is written."""
        return list(self._marking.encode(encodable(text), add_special_tokens=False).ids)

    @cached_property
    def _marking(self) -> tokenizers.Tokenizer:
        """A twin that looks for special tokens in text, made when first needed: a large vocabulary takes a second."""
        return tokenizers.Tokenizer.from_str(self._rust.to_str())  # which does not keep `encode_special_tokens`

    def frame(self, is_pair: bool = False) -> Rows:
        """The special tokens that `framed` puts before and after a text; or before, between and after two."""
        row = self._rust.encode("a", "a" if is_pair else None)
        parts: Rows = [[]]
        for before, (token_id, text) in zip([None, *row.sequence_ids], zip(row.ids, row.sequence_ids)):
            if text is None:
                parts[-1].append(token_id)
            elif text != before:
                parts.append([])
        return parts

    @property
    def special_ids(self) -> list[int]:
        """The ids of all special tokens, <unk> too."""
        return sorted(self._reserved if self.unk_id is None else {*self._reserved, self.unk_id})

    def id_of(self, token: str) -> int:
        """The id of an entry, such as a special token of one's own."""
        token_id = self._rust.token_to_id(token)
        if token_id is None:
            marked = (added.content for added in self._added.values())
            raise TokenizerError(f"the vocabulary has no entry `{token}`", suggest(token, marked))
        return int(token_id)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id as readable text, for pictures: ▁ is a space, ↵ ends a line, ⟨e0a4⟩ are bytes, no whole character."""
        return [self._readable(token_id) for token_id in ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """One text per list of ids. Special tokens are skipped, <unk> too; `pieces` shows them."""
        return list(self._rust.decode_batch([list(row) for row in ids], skip_special_tokens=True))

    def stream(self) -> "TextStream":
        """A decoder for ids that come one by one, as from a model that is writing."""
        return TextStream(self._rust)

    def to_json(self) -> str:
        """The content of tokenizer.json, which `PreTrainedTokenizerFast` of Hugging Face reads as well."""
        return self._json

    def save(self, path: Path) -> None:
        Path(path).write_text(self._json, encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer.json, ours or another's; what lies beside it may name its special tokens, see `roles.py`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise TokenizerError(
                f"{path}: cannot read a tokenizer there: {reason}", "give the path of a tokenizer.json"
            ) from None
        return cls(text, str(path), Path(path).parent)

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """The tokenizer of a published model: its tokenizer.json, or made from its vocabulary, see `published.py`."""
        folder = Path(folder)
        if (folder / "tokenizer.json").exists():
            return cls.load(folder / "tokenizer.json")
        return cls(build_from(folder).to_str(pretty=True), str(folder), folder)

    def fingerprint(self) -> str:
        """The first 16 digits of `sha256sum tokenizer.json`: equal fingerprints, equal ids for every text."""
        return sha256(self._json.encode()).hexdigest()[:16]

    def _ordinary(self, ids: list[int], *beside: list, frame: Sequence[int] = ()) -> tuple[list, ...]:
        """Ids without special tokens that text spelt, and what lies `beside` each; `frame` is 1 where one belongs.

        Word-level and unigram models can find a special token's name in their vocabulary; as text it is unknown, or,
        where nothing can be, it is left out.
        """
        if self._reserved.isdisjoint(compress(ids, (not belongs for belongs in frame)) if frame else ids):
            return ids, *beside
        spelt = [i in self._reserved and not belongs for i, belongs in zip(ids, frame or [0] * len(ids))]
        if self.unk_id is not None:
            return [self.unk_id if s else i for i, s in zip(ids, spelt)], *beside
        return tuple([value for value, s in zip(values, spelt) if not s] for values in (ids, *beside))

    def _readable(self, token_id: int) -> str:
        token = self._rust.id_to_token(token_id)
        if token is None:
            return f"⟨{token_id}?⟩"
        if not self._is_byte_level or token_id in self._added:
            return token.translate(VISIBLE)
        spelt = bytes(BYTE_OF[char] for char in token)
        try:
            return spelt.decode().translate(VISIBLE)
        except UnicodeDecodeError:
            return f"⟨{spelt.hex()}⟩"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._json,)  # a pickled Rust tokenizer forgets `encode_special_tokens`


def opening_of(rust: tokenizers.Tokenizer, vocab: Mapping[str, int]) -> list[int]:
    """The ids that the file puts before a text, seen by trying one: "a", or else an entry that it must know."""
    for text in ("a", *sorted(vocab, key=vocab.__getitem__)[:64]):
        try:
            found = rust.encode(text)
        except Exception:  # the vocabulary lacks this text, and a name for what is unknown
            continue
        if 0 in found.special_tokens_mask:
            return list(found.ids[: found.special_tokens_mask.index(0)])
    return []


def cut(texts: Sequence[int | None], room: int, *rows: list) -> None:
    """Take tokens out of a framed row, and what lies beside them, until those of its texts fit in `room`.

    `texts` says of each token whether it belongs to text 0, to text 1 or to the frame. Each text loses its end, as by
    Rust's longest-first truncation; that is a setting of the tokenizer, which other threads would be cut by as well.
    """
    counts = texts.count(0), texts.count(1)
    lost = [
        (texts.index(i) + kept, texts.index(i) + n)
        for i, (n, kept) in enumerate(zip(counts, shares(*counts, room)))
        if kept < n
    ]
    for start, end in sorted(lost, reverse=True):  # from the end, so that the other span stays where it is
        for row in rows:
            del row[start:end]


def shares(a: int, b: int, room: int) -> tuple[int, int]:
    """How many tokens each of two texts keeps: the longer one loses some until they are alike, then both do.

    Of an odd number the text that was longer keeps one more; the second, if they were as long.
    """
    if a + b <= room:
        return a, b
    short = min(a, b, room // 2)
    return (room - short, short) if a > b else (short, room - short)


class TextStream:
    """Ids to text, as they come.

        stream.step(id)  ->  the text that is now certain, or None while a character lacks some of its bytes

    The steps of a text add up to its decoding, save that wordpiece cannot take back a space: "don", " '", " t".
    """

    def __init__(self, rust: tokenizers.Tokenizer) -> None:
        self._rust, self._stream = rust, DecodeStream(skip_special_tokens=True)

    def step(self, token_id: int) -> str | None:
        text: str | None = self._stream.step(self._rust, token_id)
        return text


def train_tokenizer(
    lines: Iterable[str], config: TextConfig, progress: bool = False, is_sample: bool = False
) -> Tokenizer:
    """Learn a vocabulary from a stream of lines, read once and never held whole.

    The same lines in the same order give the same tokenizer. Memory grows with the number of distinct words, which
    `thin` bounds. If `config` is strict, text that cannot fill its `vocab_size` is an error, not a smaller result.
    """
    stream = dropwhile(lambda line: not clean(line), map(encodable, lines if is_sample else thin(lines)))
    if (first := next(stream, None)) is None:
        raise TokenizerError("there is no text to train a tokenizer on", "give at least one line that is not blank")
    rust = TOKENIZERS.resolve(config.kind)(chain([first], stream), config, progress)
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
