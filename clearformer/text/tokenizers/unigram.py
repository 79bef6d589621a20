"""The unigram language model (Kudo 2018): of all the ways to cut a word, take the most probable.

    best(word) = argmax over cuts of  sum over pieces of  log p(piece)

Training starts from every frequent substring, fits p by EM, and drops the pieces that are missed least.
Words are cut and spaces kept as in `bpe`.
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
            f"the text has more distinct characters than vocab_size = {config.vocab_size} can hold",
            "ask for a larger vocab_size, or use kind bpe, which leaves rare characters unknown",
        ) from None
    trained = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokenizer.model = settled([(piece, score) for piece, score in trained], len(config.specials))
    return tokenizer


def settled(vocab: list[tuple[str, float]], n_specials: int = len(SPECIALS)) -> models.Unigram:
    """The trained model with its pieces in one definite order: most probable first, ties by code point.

    The trainer puts back the characters that pruning lost, in the order of a hash table, each a ten-thousandth above
    the one before; here they all get the lowest score. Rounding removes the noise of sums taken in parallel.
    """
    specials, learned = vocab[:n_specials], vocab[n_specials:]
    lowest = min(score for _, score in learned)
    put_back = lowest + 1e-4 * sum(len(piece) == 1 for piece, _ in learned)
    scores = {piece: round(lowest if len(piece) == 1 and score <= put_back else score, 4) for piece, score in learned}
    ranked = sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*specials, *ranked], unk_id=SPECIALS.index("<unk>"))
