"""Output files: the values of sacrebleu, of the equations, and the comparison of systems."""

import pytest
import sacrebleu

from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.metrics.bleu import corpus_bleu
from clearformer.evaluation.metrics.chrf import corpus_chrf
from clearformer.evaluation.metrics.rouge import rouge_values
from clearformer.evaluation.metrics.wer import speech_metrics
from clearformer.evaluation.systems import evaluate_systems

REFERENCES = [
    f"the {colour} {thing} is on the table ." for colour in ("red", "blue") for thing in ("cup", "book", "pen")
]
GOOD = [line.replace("table", "desk") for line in REFERENCES]
BAD = [line.replace("the", "a").replace("is on", "lies at") for line in REFERENCES]


def test_the_metrics_of_one_system() -> None:
    result = evaluate_systems({"good": GOOD}, [REFERENCES], ["bleu", "chrf", "ter", "wer", "rouge"])
    bleu, chrf = (compute(GOOD, [REFERENCES]) for compute in (corpus_bleu, corpus_chrf))
    assert (result["bleu"], result["chrf"]) == (bleu.value, chrf.value)
    assert result["ter"] == sacrebleu.corpus_ter(GOOD, [REFERENCES]).score == pytest.approx(12.5)
    assert {"bleu": bleu.signature, "chrf": chrf.signature}.items() <= result["signatures"].items()
    assert result["signatures"]["ter"].startswith("nrefs:1|case:lc|tok:tercom")
    assert result["wer"] == pytest.approx(speech_metrics(GOOD, REFERENCES)["wer"]) == pytest.approx(1 / 8)
    rouge = rouge_values(GOOD, [REFERENCES])
    assert result["rouge2"] == pytest.approx(sum(rouge["rouge2"]) / len(GOOD)) == pytest.approx(5 / 6)
    assert result["sentences"] == 6


def test_the_closest_reference_counts_for_the_word_error_rate() -> None:
    result = evaluate_systems({"x": ["a b", "c"]}, [["a b c", "d"], ["a x", "c d"]], ["wer"])
    assert result["wer"] == pytest.approx((1 + 1) / (3 + 2))  # of "a b c" and "c d", the longer of two at distance 1


def test_systems_are_compared_with_the_first() -> None:
    result = evaluate_systems({"good": GOOD * 9, "bad": BAD * 9, "again": GOOD * 9}, [REFERENCES * 9])
    first, second, third = result["systems"]
    assert [row["hypotheses"] for row in result["systems"]] == ["good", "bad", "again"]
    assert "p_values" not in first
    assert second["p_values"].keys() == {"bleu", "chrf", "ter", "wer"}
    assert max(second["p_values"].values()) < 0.01
    assert first["bleu"] == third["bleu"] > second["bleu"]
    assert set(third["p_values"].values()) == {1.0}  # no difference
    assert evaluate_systems({"good": GOOD}, [REFERENCES], ["bleu"])["bleu"] == pytest.approx(first["bleu"])


def test_rouge_alone_is_compared_too() -> None:
    result = evaluate_systems({"good": GOOD, "bad": BAD}, [REFERENCES], ["rouge"])
    assert result["systems"][1]["p_values"].keys() == {"rouge1", "rouge2", "rougeL"}
    assert result["signatures"] == {}


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="there is no metric `blue` for files\nhint: did you mean `bleu`"):
        evaluate_systems({"x": ["a"]}, [["a"]], ["blue"])
    with pytest.raises(ConfigError, match="no tokenizer `13b`"):
        evaluate_systems({"x": ["a"]}, [["a"]], tokenize="13b")
    with pytest.raises(DataError, match="1 hypothesis but 2 references"):
        evaluate_systems({"x": ["a"]}, [["a", "b"]])
    with pytest.raises(DataError, match="all references are empty"):
        evaluate_systems({"x": ["a"]}, [[""]], ["wer"])
