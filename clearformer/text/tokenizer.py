"""Convert text to ids and back: a thin wrapper around a Rust tokenizer, which is stored in a tokenizer.json.

    lines --train_tokenizer--> Tokenizer --encode--> ids --decode--> normalised text

The wrapper adds what models need: the size of the vocabulary, and the ids of the special tokens, which `roles.py`
determines for published files. The folder `tokenizers/` has one file per kind of tokenizer.
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import chain, compress, dropwhile
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Self

import tokenizers
from tokenizers import processors

from clearformer.errors import TokenizerError, suggest
from clearformer.small_files import parse_json, read_small
from clearformer.text.config import SPECIALS, TextConfig
from clearformer.text.growth import refusal
from clearformer.text.normalize import clean, encodable
from clearformer.text.published import build_from
from clearformer.text.roles import settle, side_file_roles, usual_roles
from clearformer.text.rust_errors import guarded
from clearformer.text.stream import CONTEXT, TextStream, continued, joins
from clearformer.text.tokenizers import TOKENIZERS
from clearformer.wording import count

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_OF = {chr(byte): byte for byte in PRINTABLE} | {
    chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - {*PRINTABLE}))
}
"""GPT-2's mapping of characters to bytes: printable bytes stand for themselves, the others start at U+0100."""
VISIBLE = str.maketrans({" ": "▁", "\n": "↵", "\t": "⇥"})
SAMPLE = 1_000_000  # number of lines that are all used for training; later lines are sampled, see `thin`
UPPER_BOUND_KINDS = ("char", "word")  # the text determines the size of the vocabulary; `vocab_size` is only a maximum


Rows = list[list[int]]


class Tokenizer:
    """A tokenizer.json, trained here or published elsewhere. It is immutable, so threads can use it together.

    Text never becomes a special token: "<eos>" in a line is encoded as these five characters, or as <unk> if the
    vocabulary lacks them. This differs from Hugging Face's classes, which encode it as the special token.
    """

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS

    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int | None
    """None if the vocabulary covers every text."""
    mask_id: int | None
    vocab_size: int
    """The largest id plus one: the size of an embedding table, even if a published file leaves some ids unused."""
    opening: list[int]
    """The ids that a published file puts before every text, such as Llama's BOS; empty for GPT-2 and our own files."""
    adds_specials: bool
    """Whether the file defines special tokens around a text."""

    @guarded("the tokenizer.json cannot be used")
    def __init__(self, json_text: str, where: str = "this text", folder: Path | None = None) -> None:
        """Parse the content of a tokenizer.json; error messages call it `where`.

        Side files in `folder` may list the roles of special tokens. Roles that do not follow from the usual names are
        stored in the content, under a key that other readers ignore, so that a copy of it needs no side files.
        """
        rust = guarded(f"{where} is not a valid tokenizer.json")(tokenizers.Tokenizer.from_str)(json_text)
        content = parse_json(json_text)
        if (reason := refusal(content)) is not None:
            raise TokenizerError(f"{where}: {reason}", "copy the file again, or train a tokenizer")
        vocab = rust.get_vocab()
        special = {token.content for token in rust.get_added_tokens_decoder().values() if token.special}
        stored = (content["model"].get("roles") or {}).items()
        in_file = usual_roles(vocab, special) | {role: token for role, token in stored if str(token) in vocab}
        tokens = in_file | side_file_roles(folder, vocab) if folder else in_file
        roles = settle(tokens, where)
        if "eos" not in in_file or roles != settle(in_file, where):
            content["model"]["roles"] = tokens
            json_text = json.dumps(content, ensure_ascii=False, indent=2)

        rust.add_special_tokens([token for token in roles if token])  # flags them as special; their ids stay
        rust.encode_special_tokens = True  # do not parse them in text
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
        self._joins = joins(content.get("decoder"))
        self.opening = opening_of(rust, vocab)
        self.adds_specials = rust.num_special_tokens_to_add(False) > 0
        if not self.adds_specials:  # the default: BOS a EOS, BOS a EOS b EOS
            template = processors.TemplateProcessing(
                single=[roles.bos, "$A", roles.eos],
                pair=[roles.bos, "$A", roles.eos, "$B:1", f"{roles.eos}:1"],
                special_tokens=[(roles.bos, self.bos_id), (roles.eos, self.eos_id)],
            )
            offsets_only = [rust.post_processor] if rust.post_processor else []
            rust.post_processor = processors.Sequence([*offsets_only, template])

    @guarded("the tokenizer cannot encode this text", rust_only=True)
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return a list of ids per text, without special tokens; uses all CPU cores."""
        batch = self._rust.encode_batch_fast([encodable(text) for text in texts], add_special_tokens=False)
        return [self._ordinary(encoding.ids)[0] for encoding in batch]

    @guarded("the tokenizer cannot encode this text", rust_only=True)
    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text and, for each token, the (start, end) of its characters in the original `text`.

        The first token of a word may include the space before it.
        """
        encoding = self._rust.encode(encodable(text), add_special_tokens=False)
        ids, offsets = self._ordinary(encoding.ids, encoding.offsets)
        return ids, offsets

    @guarded("the tokenizer cannot encode this text", rust_only=True)
    def encode_with_specials(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        max_tokens: int | None = None,
        truncated: list[int] | None = None,
    ) -> tuple[Rows, Rows]:
        """Return the ids of each text a, or of each pair a and b, with special tokens, and the segment of each id.

            BERT     [CLS] a [SEP]      [CLS] a [SEP] b [SEP]       as defined in tokenizer.json
                       0   0   0          0   0   0   1   1
            default  BOS a EOS          BOS a EOS b EOS             if tokenizer.json defines none

        A row longer than `max_tokens` loses tokens from the ends of its texts, of the longer text first, but never its
        special tokens; its index is appended to `truncated`.
        """
        n_specials = self._rust.num_special_tokens_to_add(pairs is not None)
        if max_tokens is not None and max_tokens <= n_specials:
            raise TokenizerError(
                f"max_tokens = {max_tokens} leaves no token for text besides {count(n_specials, 'special token')}",
                f"set max_tokens to at least {n_specials + 1}",
            )
        whole = map(encodable, texts)
        inputs = list(whole if pairs is None else zip(whole, map(encodable, pairs), strict=True))
        rows: list[tuple[list[int], ...]] = []
        for row in self._rust.encode_batch_fast(inputs):
            ids, segments, is_special = row.ids, row.type_ids, row.special_tokens_mask
            if max_tokens is not None and len(ids) > max_tokens:
                cut(row.sequence_ids, max_tokens - n_specials, ids, segments, is_special)
                if truncated is not None:
                    truncated.append(len(rows))
            rows.append(self._ordinary(ids, segments, is_special=is_special))
        return [ids for ids, _ in rows], [segments for _, segments in rows]

    def framed(self, *arguments: Any, **options: Any) -> tuple[Rows, Rows]:
        """Deprecated: use `encode_with_specials`."""
        warn_renamed("framed", "encode_with_specials")
        return self.encode_with_specials(*arguments, **options)

    def frame(self, is_pair: bool = False) -> Rows:
        """Deprecated: use `specials_around`."""
        warn_renamed("frame", "specials_around")
        return self.specials_around(is_pair)

    @property
    def is_framed(self) -> bool:
        """Deprecated: use `adds_specials`."""
        warn_renamed("is_framed", "adds_specials")
        return self.adds_specials

    @property
    def roles(self) -> dict[str, str]:
        """A map from the roles pad, bos, eos, unk and mask to tokens; roles without a token are left out."""
        ids = {role: getattr(self, f"{role}_id") for role in ("pad", "bos", "eos", "unk", "mask")}
        return {role: str(self._rust.id_to_token(token_id)) for role, token_id in ids.items() if token_id is not None}

    @property
    def specials(self) -> list[str]:
        """All special tokens."""
        return [token.content for token in self._added.values() if token.special]

    def with_bos(self, token_id: int) -> Self:
        """Return this tokenizer with another BOS; a published decoder may not start with the BOS in its files."""
        token = self._rust.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        if token is None:
            raise TokenizerError(
                f"the vocabulary has no token with the id {token_id}",
                "check that the tokenizer and the model belong together",
            )
        if token_id == self.bos_id:
            return self
        content = json.loads(self._json)
        content["model"]["roles"] = {**content["model"].get("roles", {}), "bos": token}
        return type(self)(json.dumps(content, ensure_ascii=False, indent=2))

    @guarded("the tokenizer cannot encode this text", rust_only=True)
    def encode_marked(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are recognised, such as the output of a chat template."""
        return list(self._parsing.encode(encodable(text), add_special_tokens=False).ids)

    @cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        """A copy that parses special tokens in text, built on first use: a large vocabulary takes a second."""
        return tokenizers.Tokenizer.from_str(self._rust.to_str())  # to_str drops `encode_special_tokens`

    def specials_around(self, is_pair: bool = False) -> Rows:
        """Return the special tokens before and after a text; with `is_pair`, before, between and after two texts."""
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
        """The ids of all special tokens, including <unk>."""
        return sorted(self._reserved if self.unk_id is None else {*self._reserved, self.unk_id})

    def id_of(self, token: str) -> int:
        """Return the id of a token, such as one of `TextConfig.extra`."""
        token_id = self._rust.token_to_id(token)
        if token_id is None:
            specials = (added.content for added in self._added.values())
            raise TokenizerError(f"the vocabulary has no token `{token}`", suggest(token, specials))
        return int(token_id)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return tokens as readable text, for figures: ▁ is a space, ↵ a line feed, ⟨e0a4⟩ an incomplete character."""
        return [self._readable(token_id) for token_id in ids]

    @guarded("the tokenizer cannot decode these tokens", rust_only=True)
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return one text per list of ids. Special tokens, including <unk>, are skipped; `pieces` shows them."""
        return list(self._rust.decode_batch([list(row) for row in ids], skip_special_tokens=True))

    def continued(self, before: Sequence[Sequence[int]], ids: Sequence[Sequence[int]]) -> list[str | None]:
        """Return the text of each list of ids that follows others, or None if only a `stream` can tell its ends.

        A few ids before a text decide whether it begins with a space.
        """
        contexts = [[token for token in row if token not in self._reserved][-CONTEXT:] for row in before]
        return continued(self.decode, contexts, ids) if self._joins else [None] * len(ids)

    def stream(self) -> TextStream:
        """Return a decoder for ids that arrive one by one, as from a model that generates text."""
        return TextStream(self._rust)

    def to_json(self) -> str:
        """Return the content of tokenizer.json, which Hugging Face's `PreTrainedTokenizerFast` can read as well."""
        return self._json

    def save(self, path: Path) -> None:
        Path(path).write_text(self._json, encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer.json; side files in its folder may list its special tokens, see `roles.py`."""
        try:
            text = read_small(Path(path))
        except (OSError, ValueError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
            hint = "give the path of a tokenizer.json"
            raise TokenizerError(f"{path} cannot be read as a tokenizer: {reason}", hint) from None
        return cls(text, str(path), Path(path).parent)

    @classmethod
    @guarded("the vocabulary files of the tokenizer cannot be used", "copy the files again")
    def from_folder(cls, folder: Path) -> Self:
        """Load the tokenizer.json of a published model, or build it from the vocabulary files, see `published.py`."""
        folder = Path(folder)
        if (folder / "tokenizer.json").exists():
            return cls.load(folder / "tokenizer.json")
        return cls(build_from(folder).to_str(pretty=True), str(folder), folder)

    def fingerprint(self) -> str:
        """Return 16 digits of the SHA-256 hash of tokenizer.json. Equal fingerprints mean equal ids for every text."""
        return sha256(self._json.encode()).hexdigest()[:16]

    def _ordinary(self, ids: list[int], *parallel: list, is_special: Sequence[int] = ()) -> tuple[list, ...]:
        """Remove special tokens that were matched in text from `ids`, and from the lists `parallel` to it.

        Word-level and unigram models can match the name of a special token in text. Such a match becomes <unk>, or is
        dropped if there is no <unk>. `is_special` is 1 for special tokens that the tokenizer added, which stay.
        """
        if self._reserved.isdisjoint(compress(ids, (not s for s in is_special)) if is_special else ids):
            return ids, *parallel
        from_text = [i in self._reserved and not s for i, s in zip(ids, is_special or [0] * len(ids))]
        if self.unk_id is not None:
            return [self.unk_id if s else i for i, s in zip(ids, from_text)], *parallel
        return tuple([value for value, s in zip(values, from_text) if not s] for values in (ids, *parallel))

    def _readable(self, token_id: int) -> str:
        token = self._rust.id_to_token(token_id)
        if token is None:
            return f"⟨{token_id}?⟩"
        if not self._is_byte_level or token_id in self._added:
            return token.translate(VISIBLE)
        utf8 = bytes(BYTE_OF[char] for char in token)
        try:
            return utf8.decode().translate(VISIBLE)
        except UnicodeDecodeError:
            return f"⟨{utf8.hex()}⟩"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._json,)  # a pickled Rust tokenizer loses `encode_special_tokens`


def warn_renamed(old: str, new: str) -> None:
    message = f"Tokenizer.{old} is deprecated: use Tokenizer.{new}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def opening_of(rust: tokenizers.Tokenizer, vocab: Mapping[str, int]) -> list[int]:
    """Return the ids that the file puts before a text, found by encoding "a" or, if that fails, other tokens."""
    for text in ("a", *sorted(vocab, key=vocab.__getitem__)[:64]):
        try:
            encoding = rust.encode(text)
        except Exception:  # the vocabulary lacks this text and has no unknown token
            continue
        if 0 in encoding.special_tokens_mask:
            return list(encoding.ids[: encoding.special_tokens_mask.index(0)])
    return []


def cut(texts: Sequence[int | None], budget: int, *rows: list) -> None:
    """Delete tokens from lists parallel to `texts`, in place, until at most `budget` tokens of text remain.

    `texts` is 0 or 1 for tokens of the first or second text, and None for special tokens. Tokens are deleted from the
    end of each text, as in the Rust library's longest-first truncation. The library's function cannot be used, since
    it changes a setting of the tokenizer for all threads.
    """
    lengths = texts.count(0), texts.count(1)
    removed = [
        (texts.index(i) + remaining, texts.index(i) + n)
        for i, (n, remaining) in enumerate(zip(lengths, truncated_lengths(*lengths, budget)))
        if remaining < n
    ]
    for start, end in sorted(removed, reverse=True):  # from the end, so that the other span does not move
        for row in rows:
            del row[start:end]


def truncated_lengths(a: int, b: int, budget: int) -> tuple[int, int]:
    """Return the lengths of two texts after truncation to `budget` tokens: first the longer one shrinks, then both.

    If the budget is odd, the longer text keeps one more token; if both were equally long, the second text does.
    """
    if a + b <= budget:
        return a, b
    short = min(a, b, budget // 2)
    return (budget - short, short) if a > b else (short, budget - short)


def train_tokenizer(
    lines: Iterable[str], config: TextConfig, progress: bool = False, is_sample: bool = False
) -> Tokenizer:
    """Learn a vocabulary from a stream of lines, which is read once and never held in memory as a whole.

    The same lines in the same order give the same tokenizer. Memory grows with the number of distinct words, which
    `thin` limits. With `config.strict`, text that cannot fill `vocab_size` is an error; otherwise the vocabulary is
    smaller. `is_sample` means that the lines are already a sample.
    """
    stream = dropwhile(lambda line: not clean(line), map(encodable, lines if is_sample else thin(lines)))
    if (first := next(stream, None)) is None:
        raise TokenizerError(
            "the training data contains no text to train a tokenizer on", "give at least one line that is not empty"
        )
    rust = TOKENIZERS.resolve(config.kind)(chain([first], stream), config, progress)
    tokenizer = Tokenizer(rust.to_str(pretty=True))
    # One percent of tolerance: unigram prunes in rounds and may stop a few tokens short.
    if config.strict and config.kind not in UPPER_BOUND_KINDS and tokenizer.vocab_size < 0.99 * config.vocab_size:
        raise TokenizerError(
            f"the training text is too small for vocab_size = {config.vocab_size}: "
            f"kind = {config.kind} finds only {count(tokenizer.vocab_size, 'token')}",
            f"set text.vocab_size to at most {tokenizer.vocab_size}, or add text",
        )
    return tokenizer


def thin(lines: Iterable[str], full: int = SAMPLE) -> Iterator[str]:
    """Yield the first `full` lines of a corpus, and each later line i with probability full / i.

    About full (1 + ln(N / full)) of N lines remain (3.3 million of 10 million), spread over the whole corpus, whatever
    its length and order. The draws are seeded and depend only on line numbers.
    """
    draw = Random(0).random
    return (line for i, line in enumerate(lines, start=1) if i <= full or draw() * i < full)
