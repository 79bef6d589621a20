"""The settings of a tokenizer to be trained."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clearformer.config import Config
from clearformer.errors import suggest
from clearformer.text.normalize import Form
from clearformer.text.tokenizers import TOKENIZERS

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
"""In this order, hence with ids 0 to 3, in every tokenizer that we train; `TextConfig.extra` come after."""
KEEPING_KINDS = ("char", "byte-bpe")  # the others mark spaces, or forget them


class TextConfig(Config):
    """How text becomes ids: the `[text]` table of a recipe."""

    kind: str = Field(default="bpe", description="char, word, bpe, byte-bpe, wordpiece or unigram")
    vocab_size: int = Field(
        default=8000, gt=4, description="entries, the special tokens included; an upper bound for char and word"
    )
    lowercase: bool = Field(default=False, description="fold case; decoding cannot bring it back")
    normalization: Form = Field(
        default="NFC", description="Unicode form: NFC, or NFKC which also folds ligatures, widths and circled digits"
    )
    min_frequency: int = Field(
        default=2, ge=1, description="a word, or a pair to merge, that occurs less often is ignored; not for unigram"
    )
    whitespace: Literal["collapse", "keep"] = Field(
        default="collapse",
        description="collapse: one space for each run of white space; keep: all as it is, for char and byte-bpe",
    )
    extra: tuple[str, ...] = Field(
        default=(),
        description='more special tokens, after the four and in this order, such as "[MASK]"',
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
        if kind not in TOKENIZERS.names():
            raise ValueError(f"no such tokenizer; {suggest(kind, TOKENIZERS.names())}")
        return kind

    @model_validator(mode="after")
    def _joins_words_only(self) -> Self:
        if self.joiner is not None and self.kind != "word":
            raise ValueError(f'`joiner` goes with kind = "word", not with "{self.kind}"')
        return self

    @model_validator(mode="after")
    def _can_keep(self) -> Self:
        if self.whitespace == "keep" and self.kind not in KEEPING_KINDS:
            kinds = " or ".join(f'"{kind}"' for kind in KEEPING_KINDS)
            raise ValueError(f'`whitespace` = "keep" goes with kind = {kinds}, not with "{self.kind}"')
        return self

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if "" in self.extra or len({*self.specials}) < len(self.specials):
            raise ValueError(f"`extra` must name new tokens, each once; there are {', '.join(SPECIALS)} already")
        if self.vocab_size <= len(self.specials):
            raise ValueError(
                f"`vocab_size` = {self.vocab_size} holds nothing besides {len(self.specials)} special tokens"
            )
        return self

    @property
    def specials(self) -> tuple[str, ...]:
        """The special tokens in the order of their ids."""
        return *SPECIALS, *self.extra
