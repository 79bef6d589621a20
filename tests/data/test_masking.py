import numpy as np
import pytest

from clearformer.data.batch import IGNORE
from clearformer.data.masking import MaskingConfig, mask_tokens
from clearformer.errors import ConfigError

B, T, V = 400, 47, 101
PAD, CLS, SEP, MASK = 0, 1, 2, 3
SPECIALS = (PAD, CLS, SEP)
LENGTHS = np.random.default_rng(7).integers(11, T + 1, B)


def texts() -> np.ndarray:
    """CLS x ... SEP padding, with words drawn from all the rest."""
    tokens = np.random.default_rng(5).integers(MASK + 1, V, (B, T))
    where = np.arange(T)
    tokens[:, 0] = CLS
    tokens[where == LENGTHS[:, None] - 1] = SEP
    tokens[where >= LENGTHS[:, None]] = PAD
    return tokens


def masked(seed: int = 0, words: np.ndarray | None = None, **fields: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return mask_tokens(texts(), MaskingConfig(**fields), rng, MASK, V, SPECIALS, words)


def chi_squared(observed: np.ndarray, expected: np.ndarray) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


def bound(n_free: int) -> float:
    """What a χ² of so many degrees of freedom passes once in a million draws (Wilson & Hilferty 1931)."""
    return n_free * (1 - 2 / (9 * n_free) + 4.753 * (2 / (9 * n_free)) ** 0.5) ** 3


def test_labels_say_what_stood_there_and_nothing_else_changes() -> None:
    before, (hidden, labels) = texts(), masked()
    chosen = labels != IGNORE
    assert (labels[chosen] == before[chosen]).all()
    assert (hidden[~chosen] == before[~chosen]).all()
    assert (hidden.shape, hidden.dtype, labels.dtype) == ((B, T), np.int64, np.int64)


def test_special_tokens_are_never_chosen_and_never_drawn() -> None:
    before, (hidden, labels) = texts(), masked(rate=0.9, masked=0.0, random=1.0)
    is_special = before < MASK
    assert (labels[is_special] == IGNORE).all()
    assert hidden[~is_special].min() > MASK
    twice, _ = mask_tokens(hidden := masked()[0], MaskingConfig(rate=0.9), np.random.default_rng(0), MASK, V, SPECIALS)
    assert (twice[hidden == MASK] == MASK).all()  # a mask is special too


def test_eighty_ten_ten() -> None:
    before, (hidden, labels) = texts(), masked()
    chosen = labels != IGNORE
    n = chosen.sum()
    is_mask, stays = hidden[chosen] == MASK, hidden[chosen] == before[chosen]
    observed = np.array([is_mask.sum(), (~is_mask & ~stays).sum(), stays.sum()])
    repeated = 0.1 / (V - MASK - 1)  # a drawn token may be the one that stood there
    assert chi_squared(observed, n * np.array([0.8, 0.1 - repeated, 0.1 + repeated])) < bound(2)


def test_one_in_seven_wherever_it_stands() -> None:
    """Over twenty seeds, each position of a text is chosen equally often."""
    eligible, n_seeds = texts() > MASK, 20
    chosen = sum((masked(seed)[1] != IGNORE).sum(0) for seed in range(n_seeds))
    yes, no = (n_seeds * eligible.sum(0)[1:-1] * share for share in (0.15, 0.85))
    assert chi_squared(chosen[1:-1], yes) + chi_squared(yes + no - chosen[1:-1], no) < bound(T - 2)
    assert chosen[0] == 0


def test_every_token_is_drawn_equally_often() -> None:
    hidden, labels = masked(masked=0.0, random=1.0, rate=0.9)
    drawn = np.bincount(hidden[labels != IGNORE], minlength=V)[MASK + 1 :]
    assert chi_squared(drawn, np.full(len(drawn), drawn.mean())) < bound(len(drawn) - 1)


def test_the_generator_alone_decides() -> None:
    for ours, theirs in zip(masked(3), masked(3)):
        assert (ours == theirs).all()
    assert (masked(3)[1] != masked(4)[1]).any()


def test_whole_words_go_together() -> None:
    words = np.broadcast_to(np.arange(T) // 3, (B, T))  # three tokens a word
    hidden, labels = masked(words=words)
    chosen, eligible = labels != IGNORE, texts() > MASK
    counts: set[int] = set()
    for word in range(T // 3):
        part = words[0] == word
        counts |= set(chosen[eligible[:, part].all(1)][:, part].sum(1).tolist())
    assert counts == {0, 3}
    assert chosen.sum() / eligible.sum() == pytest.approx(0.15, abs=0.01)
    # Inside a word each token has its own luck: some are masked beside one that is not.
    fates = (hidden == MASK)[:, 3:6][chosen[:, 3]]
    assert ((fates.sum(1) > 0) & (fates.sum(1) < 3)).any()


def test_shares_of_more_than_all_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"masked = 0\.8 and random = 0\.3 add up to more than 1"):
        MaskingConfig.parse({"random": 0.3}, "[masking]")
