"""WordPiece (Schuster and Nakajima 2012, as in BERT): the longest matching token from the left, repeatedly.

    "unaffable, isn't"  ->  un ##aff ##able , isn ' t

Text is split at white space and around punctuation. Spaces are not stored; decoding guesses them. Tokens are learned by
merging frequent pairs, as in most open-source trainers; the original chose merges by likelihood.
"""

from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from clearformer.text.config import TextConfig
from clearformer.text.normalize import normalizer
from clearformer.text.tokenizers.bpe import spaced, untie

NEEDLESS_SPACE = Regex(
    r" (?=[.,!?;:%)\]}»”…।॥])|(?<=[(\[{«“¿¡]) "  # before closing and after opening punctuation
    r"|(?<=\p{L}) (?=['’-] \p{L})|(?<=\p{L} ['’-]) (?=\p{L})"  # isn ' t, t - shirt
)


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(learn(lines, config, progress), unk_token="<unk>"))
    tokenizer.normalizer = normalizer(config.normalization, config.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Not the decoder's `cleanup` option, which among other changes turns "do not" into "don't".
    joined = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.decoder = decoders.Sequence([joined, decoders.Fuse(), decoders.Replace(NEEDLESS_SPACE, "")])
    tokenizer.add_special_tokens(list(config.specials))
    return tokenizer


def learn(lines: Iterator[str], config: TextConfig, progress: bool) -> dict[str, int]:
    """Learn the vocabulary by BPE on words that begin with ▁: "▁play" becomes `play`, and "ing" becomes `##ing`.

    The library's WordPiece trainer numbers its ## tokens in the order of a hash table, so that ties break differently
    in every run. Every character is a token in both forms, so at most half of the tokens are distinct characters.
    """
    size = config.vocab_size - len(config.specials)
    alphabet = 1 + size // 2  # including ▁, which is not a token
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizer(config.normalization, config.lowercase)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Metaspace()])
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        limit_alphabet=alphabet,
        show_progress=progress,
    )
    bpe.train_from_iterator(untie(lines, alphabet, spaced(config).normalize_str), trainer)
    learned = bpe.get_vocab()
    parts = sorted(learned, key=learned.__getitem__)
    characters = [part for part in parts if len(part) == 1 and part != "▁"]
    merged = [part[1:] if part[0] == "▁" else f"##{part}" for part in parts if len(part) > 1]
    entries = dict.fromkeys([*characters, *(f"##{c}" for c in characters), *merged])
    return {token: rank for rank, token in enumerate([*config.specials, *list(entries)[:size]])}
