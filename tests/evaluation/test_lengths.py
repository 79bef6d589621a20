from clearformer.evaluation.evaluate import EvaluateConfig
from clearformer.evaluation.lengths import bleu_by_length

PLAIN = EvaluateConfig(tokenize="none")
# Lengths 3, 5 and 11, in no order; whoever translates gets the short ones right and the long ones wrong.
SOURCES = ["a b c", "a b c d e f g h i j k", "a b c d e", "c b a", "e d c b a"]
REFERENCES = [["w x y z"] * 5]
TRANSLATIONS = ["w x y z", "q q q q", "w x y q", "w x y z", "w x y z"]


def test_groups_are_ordered_by_length_and_scored_apart() -> None:
    groups = bleu_by_length(SOURCES, TRANSLATIONS, REFERENCES, PLAIN, n_groups=5)
    assert [(group["words"], group["sentences"]) for group in groups] == [(3, 2), (5, 2), (11, 1)]
    assert groups[0]["bleu"] > 99.9 > groups[1]["bleu"] > groups[2]["bleu"] == 0


def test_a_small_rest_joins_its_neighbours() -> None:
    """Two groups of at least half: the single longest sentence is no group by itself."""
    groups = bleu_by_length(SOURCES, TRANSLATIONS, REFERENCES, PLAIN, n_groups=2)
    assert sum(group["sentences"] for group in groups) == 5
    assert all(group["sentences"] * 2 >= 5 for group in groups)


def test_one_sentence_is_one_group() -> None:
    assert len(bleu_by_length(["a b"], ["w x y z"], [["w x y z"]], PLAIN)) == 1
