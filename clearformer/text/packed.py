"""Encode many texts into one array of ids, with a dictionary of the words that were encoded before.

    encode("the cat sat")  =  encode("the") + encode("cat") + encode("sat")

This holds if a tokenizer collapses white space and never joins two words: for `bpe`, `byte-bpe` and `unigram`, unless
they keep white space. A corpus repeats its words, so that most of them are normalised, split and merged only once.
Other tokenizers encode whole texts.
"""

import json
from collections.abc import Sequence
from itertools import chain

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from clearformer.text.normalize import SPACES
from clearformer.text.tokenizer import Tokenizer
from clearformer.text.tokenizers.bpe import WORD

MAX_WORDS = 2**17  # words in the dictionary, which needs about 25 MB


class PackedEncoder:
    """Encodes texts with a tokenizer: `flat, lengths = encoder(texts)`."""

    def __init__(self, tokenizer: Tokenizer, dtype: str, max_words: int = MAX_WORDS) -> None:
        self.tokenizer, self.dtype, self.max_words = tokenizer, np.dtype(dtype), max_words
        self.is_word_by_word = is_word_by_word(tokenizer)
        self.known: dict[str, bytes] = {}  # the ids of each word, as the bytes of an array

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts, concatenated, without special tokens, and the number of ids of each (n,)."""
        if not self.is_word_by_word:
            rows = self.tokenizer.encode(texts)
            lengths = np.fromiter(map(len, rows), "int64", len(rows))
            return np.fromiter(chain.from_iterable(rows), self.dtype, int(lengths.sum())), lengths
        words = [text.split(" ") for text in texts]
        self.learn({*chain.from_iterable(words)})
        packed = [b"".join(map(self.known.__getitem__, row)) for row in words]
        lengths = np.fromiter(map(len, packed), "int64", len(packed)) // self.dtype.itemsize
        return np.frombuffer(b"".join(packed), self.dtype), lengths

    def learn(self, words: set[str]) -> None:
        """Add the words to the dictionary. A full dictionary is emptied first: frequent words soon return."""
        if len(self.known) > self.max_words:
            self.known.clear()
        unknown = list(words.difference(self.known))
        for word, ids in zip(unknown, self.tokenizer.encode(unknown)):
            self.known[word] = np.array(ids, self.dtype).tobytes()


def is_word_by_word(tokenizer: Tokenizer) -> bool:
    """Whether the ids of a text are the ids of its words, known by the steps that the tokenizers above have."""
    content = json.loads(tokenizer.to_json())
    ending = normalizers.Sequence([normalizers.Replace(SPACES, " "), normalizers.Strip(), normalizers.Prepend(" ")])
    split = pre_tokenizers.Split(WORD, "isolated")
    return (
        all(token["special"] for token in content["added_tokens"])  # others are matched in text, across words
        and steps(content["normalizer"], "normalizers")[-3:] == json.loads(ending.__getstate__())["normalizers"]
        and steps(content["pre_tokenizer"], "pretokenizers")[:1] == [json.loads(split.__getstate__())]
    )


def steps(step: dict | None, key: str) -> list[dict]:
    return [] if step is None else step.get(key, [step])
