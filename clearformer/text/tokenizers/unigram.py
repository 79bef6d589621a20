"""The unigram language model (Kudo 2018), which finds the most probable segmentation of each word.

    best(word) = argmax over segmentations of  sum over tokens of  log p(token)

Training starts with all frequent substrings, fits p by EM, and removes the tokens that lower the likelihood least.
Text is split into words, and spaces are kept, as in `bpe`.
"""

import json
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, trainers

from clearformer.errors import TokenizerError
from clearformer.text.config import SPECIALS, TextConfig
from clearformer.text.tokenizers.bpe import marked, spaced


def build(lines: Iterator[str], config: TextConfig, progress: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = spaced(config), marked()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=config.vocab_size,
        special_tokens=list(config.specials),
        unk_token="<unk>",
        show_progress=progress,
    )
    try:
        tokenizer.train_from_iterator(lines, trainer)
    except Exception as error:
        if "not large enough" not in str(error):
            raise
        raise TokenizerError(
            f"the text has more distinct characters than vocab_size = {config.vocab_size} allows",
            'increase text.vocab_size, or set text.kind = "bpe", which encodes rare characters as <unk>',
        ) from None
    trained = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokenizer.model = settled([(token, logprob) for token, logprob in trained], len(config.specials))
    return tokenizer


def settled(vocab: list[tuple[str, float]], n_specials: int = len(SPECIALS)) -> models.Unigram:
    """Return the trained model with its tokens in a reproducible order: most probable first, ties by code point.

    The trainer restores characters that pruning removed, in the order of a hash table, each with a log-probability
    1e-4 above the previous one; here they all get the lowest. Rounding removes the noise of parallel summation.
    """
    specials, learned = vocab[:n_specials], vocab[n_specials:]
    lowest = min(logprob for _, logprob in learned)
    restored = lowest + 1e-4 * sum(len(token) == 1 for token, _ in learned)  # the highest of restored characters
    logprobs = {token: round(lowest if len(token) == 1 and p <= restored else p, 4) for token, p in learned}
    ranked = sorted(logprobs.items(), key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*specials, *ranked], unk_id=SPECIALS.index("<unk>"))
