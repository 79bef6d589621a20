"""The [text] table of a recipe: settings for training a tokenizer."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clearformer.config import Config
from clearformer.errors import suggest
from clearformer.text.normalize import Form
from clearformer.text.tokenizers import TOKENIZERS
from clearformer.wording import count, listed

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""The special tokens with ids 0 to 3 of every tokenizer trained here; the tokens of `TextConfig.extra` follow."""
KEEPING_KINDS = ("char", "byte-bpe")  # the other kinds cannot represent runs of white space


class TextConfig(Config):
    """The [text] table of a recipe: how text is normalised and split into tokens."""

    kind: str = Field(default="bpe", description="kind of tokenizer: char, word, bpe, byte-bpe, wordpiece or unigram")
    vocab_size: int = Field(
        default=8000, gt=4, description="tokens in the vocabulary, special tokens included; a maximum for char and word"
    )
    lowercase: bool = Field(default=False, description="whether to lowercase all text, which decoding cannot undo")
    normalization: Form = Field(
        default="NFC",
        description="Unicode normalisation form: NFC, or NFKC, which also folds ligatures, widths and circled digits",
    )
    min_frequency: int = Field(
        default=2, ge=1, description="minimum count of a word, or of a pair of symbols to merge; unused by unigram"
    )
    whitespace: Literal["collapse", "keep"] = Field(
        default="collapse",
        description="collapse: replace each run of white space by one space; keep: no change (char and byte-bpe only)",
    )
    extra: tuple[str, ...] = Field(
        default=(),
        description='list of additional special tokens, such as "[MASK]"; their ids start at 4',
    )
    joiner: str | None = Field(
        default=None,
        min_length=1,
        description='ending of words that decoding joins to the next word, for kind "word": "@@" in "ein@@ es"',
    )
    shared: bool = Field(default=True, description="whether both languages of a parallel corpus use one vocabulary")
    strict: bool = Field(
        default=True, description="whether a vocab_size too large for the text is an error; false: use a smaller one"
    )
    file: Path | None = Field(
        default=None, description="path of a tokenizer.json to use instead of training a tokenizer"
    )

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in TOKENIZERS:
            raise ValueError(f"there is no tokenizer called `{kind}`; {suggest(kind, TOKENIZERS.names())}")
        return kind

    @model_validator(mode="after")
    def _joins_words_only(self) -> Self:
        if self.joiner is not None and self.kind != "word":
            raise ValueError(f'`joiner` requires kind = "word", not "{self.kind}"')
        return self

    @model_validator(mode="after")
    def _can_keep(self) -> Self:
        if self.whitespace == "keep" and self.kind not in KEEPING_KINDS:
            kinds = " or ".join(f'"{kind}"' for kind in KEEPING_KINDS)
            raise ValueError(f'`whitespace` = "keep" requires kind = {kinds}, not "{self.kind}"')
        return self

    @model_validator(mode="after")
    def _specials_fit(self) -> Self:
        if "" in self.extra or len({*self.specials}) < len(self.specials):
            raise ValueError(f"`extra` must list distinct tokens that are not empty and differ from {listed(SPECIALS)}")
        if self.vocab_size <= len(self.specials):
            raise ValueError(
                f"`vocab_size` = {self.vocab_size} leaves no token for text: "
                f"there are {count(len(self.specials), 'special token')}"
            )
        return self

    @property
    def specials(self) -> tuple[str, ...]:
        """The special tokens in the order of their ids."""
        return *SPECIALS, *self.extra
