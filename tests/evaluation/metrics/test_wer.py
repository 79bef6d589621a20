import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.lib_ter import BeamEditDistance

from clearformer.errors import DataError
from clearformer.evaluation.metrics.wer import edits, error_rate, speech_metrics

words = st.lists(st.sampled_from(["one", "two", "three"]), max_size=7)


def test_by_hand() -> None:
    assert edits("kitten", "sitting") == 3
    assert edits(["one", "two", "three"], ["one", "too", "three", "four"]) == 2
    assert edits([], ["a", "b"]) == edits(["a", "b"], []) == 2
    metrics = speech_metrics(["one two", "five five four"], ["one two three", "five four"])
    assert metrics == {"wer": 2 / 5, "cer": (6 + 5) / (13 + 9), "words": 5, "sentences": 2}
    assert error_rate([["a", "b", "c"]], [["d"]]) == 3


@given(words.filter(len), words)
def test_edits_are_sacrebleus(reference: list[str], hypothesis: list[str]) -> None:
    assert edits(reference, hypothesis) == BeamEditDistance(reference)(hypothesis)[0]
    assert edits(reference, hypothesis) == edits(hypothesis, reference)


def test_nothing_to_score_is_said() -> None:
    with pytest.raises(DataError, match="all references are empty"):
        speech_metrics(["a"], [""])
    with pytest.raises(DataError, match="2 hypotheses but 1 reference in list 1 of 1"):
        speech_metrics(["a", "b"], ["a"])
