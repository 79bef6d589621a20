import pytest

from clearformer.errors import ConfigError
from clearformer.evaluation.evaluate import EvaluateConfig, translation_metrics


def test_an_unknown_tokenizer_is_refused_before_anything_is_translated() -> None:
    with pytest.raises(ConfigError, match=r"\[evaluate\] tokenize = '13b': no such tokenizer; did you mean `13a`\?"):
        EvaluateConfig.parse({"tokenize": "13b"}, "x.toml: [evaluate]")


@pytest.mark.parametrize("tokenize", ["13a", "char", "intl", "none", "zh"])
def test_the_tokenizer_that_is_asked_for_is_the_one_that_scores(tokenize: str) -> None:
    metrics = translation_metrics(["a b c d"], [["a b c d"]], EvaluateConfig(tokenize=tokenize))
    assert metrics["bleu"] == pytest.approx(100)
    assert f"|tok:{tokenize}|" in metrics["signatures"]["bleu"]
