"""Agreement across a clause: the sentences, the networks that read them, and what one of them learns."""

from random import Random
from typing import Any

import pytest
import torch

from clearformer.bundled.grammar.lexicon import Number
from clearformer.claims import agreement
from clearformer.claims.agreement import NETWORKS, Sentence, draw, nearest, predict

IDS = {
    word: i
    for i, word in enumerate(["a", "man", "men", "who", "pulled", "the", "cart", "carts", "was", "were"], start=2)
}
SHORT = Sentence(("the", "man", "who", "pulled", "carts"), Number.ONE, 3)
LONG = Sentence(("the", "men", "who", "pulled", "the", "cart", "who", "pulled", "the", "cart"), Number.MANY, 8)


@pytest.mark.parametrize("bounds", [(1, 5), (21, 30)])
def test_sentences_have_a_clause_of_the_length_asked_for(bounds: tuple[int, int]) -> None:
    sentences = draw(20, bounds, Random(0))
    assert len(sentences) == 20
    for sentence in sentences:
        assert bounds[0] <= sentence.distance <= bounds[1]
        assert sentence.words[-sentence.distance] in ("who", "whom", "which")
    assert sum(sentence.number for sentence in sentences) == 10


def test_sentences_of_the_test_are_not_drawn_again() -> None:
    tests = draw(50, (1, 5), Random(0))
    again = draw(50, (1, 5), Random(0), {sentence.words for sentence in tests})
    assert not {sentence.words for sentence in tests} & {sentence.words for sentence in again}


def test_the_nearest_noun_is_not_the_subject() -> None:
    assert nearest(SHORT) is Number.MANY
    assert nearest(LONG) is Number.ONE


@pytest.mark.parametrize("name", NETWORKS)
def test_a_sentence_is_read_alike_alone_and_beside_a_longer_one(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name](len(IDS) + 2).eval()
    with torch.no_grad():
        alone, together = (predict(network, some, IDS)[0] for some in ([SHORT], [SHORT, LONG]))
    assert alone.shape == (len(IDS) + 2,)
    torch.testing.assert_close(alone, together)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_answer_depends_on_the_first_noun(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name](len(IDS) + 2).eval()
    plural = SHORT._replace(words=("the", "men", *SHORT.words[2:]))
    with torch.no_grad():
        one, many = predict(network, [SHORT, plural], IDS)
    assert not one.allclose(many, rtol=1e-3, atol=1e-6)


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "BINS", ((1, 5), (6, 10)))
        patch.setattr(agreement, "REGIMES", {"short": (1, 5), "all": (1, 10)})
        patch.setattr(agreement, "NETWORKS", {"GRU": NETWORKS["GRU"]})
        patch.setattr(agreement, "SEEDS", 1)
        patch.setattr(agreement, "STEPS", 300)
        patch.setattr(agreement, "SENTENCES", 500)
        return agreement.look(seed=3)


def test_a_gru_learns_agreement_across_a_few_words(values: dict[str, Any]) -> None:
    """Of 200 sentences, 70 % right by chance would be more than five deviations."""
    assert values["accuracy"]["short"]["GRU"][0] > 0.7
    assert values["farthest"]["all"]["GRU"] == values["accuracy"]["all"]["GRU"][-1]
    assert [len(panel["series"]["nearest noun"][0]) for panel in values["panels"]] == [2, 2]
