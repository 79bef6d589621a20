"""One token per word between white space, for text that is already tokenised.

    "ein@@ es hund ."  ->  ein@@ es hund .

The `joiner` of such text, here "@@", joins a token to the next one when decoding: "eines hund ."
"""

import re
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import PreTokenizer

from clearformer.text.config import TextConfig
from clearformer.text.normalize import composer, normalizer


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    tokenizer = frequent(lines, config, pre_tokenizers.WhitespaceSplit(), progress)
    if config.joiner is not None:
        # The WordPiece decoder puts a space before each token without its prefix; no word begins with a space.
        spaced = decoders.WordPiece(prefix=" ", cleanup=False)
        joined = decoders.Replace(Regex(re.escape(config.joiner) + "( |$)"), "")
        tokenizer.decoder = decoders.Sequence([spaced, decoders.Fuse(), joined])
    return tokenizer


def frequent(lines: Iterator[str], config: TextConfig, cut: PreTokenizer, progress: bool) -> Tokenizer:
    """Build a vocabulary of the most frequent strings that `cut` produces, ties by code point; others become <unk>.

    The special tokens are put at the front of the vocabulary once training is done. The Rust trainer would instead rank
    special tokens that occur in the text (the Penn Treebank is full of <unk>) by their frequency.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    spelling = composer if config.whitespace == "keep" else normalizer
    tokenizer.normalizer = spelling(config.normalization, config.lowercase)
    tokenizer.pre_tokenizer = cut
    size = config.vocab_size
    tokenizer.train_from_iterator(
        lines, trainers.WordLevelTrainer(vocab_size=size, min_frequency=config.min_frequency, show_progress=progress)
    )
    counted = tokenizer.get_vocab()
    ranked = list(dict.fromkeys([*config.specials, *sorted(counted, key=counted.__getitem__)]))[:size]
    tokenizer.model = models.WordLevel({word: rank for rank, word in enumerate(ranked)}, unk_token="<unk>")
    tokenizer.add_special_tokens(list(config.specials))
    return tokenizer
