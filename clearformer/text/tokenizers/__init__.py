"""The kinds of tokenizers, one file per kind. TOKENIZERS maps their names to their builders."""

from collections.abc import Callable

import tokenizers

from clearformer.registry import Table

TOKENIZERS: Table[Callable[..., tokenizers.Tokenizer]] = Table(
    "tokenizer",
    {
        "char": "clearformer.text.tokenizers.char:build",
        "word": "clearformer.text.tokenizers.word:build",
        "bpe": "clearformer.text.tokenizers.bpe:build",
        "byte-bpe": "clearformer.text.tokenizers.byte_bpe:build",
        "wordpiece": "clearformer.text.tokenizers.wordpiece:build",
        "unigram": "clearformer.text.tokenizers.unigram:build",
    },
)
