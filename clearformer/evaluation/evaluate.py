"""Evaluation of a translator: BLEU and chrF of its translations."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, field_validator

from clearformer.config import Config
from clearformer.errors import suggest
from clearformer.evaluation.metrics.bleu import TOKENIZERS, corpus_bleu
from clearformer.evaluation.metrics.chrf import corpus_chrf
from clearformer.handles.translator import Translator


class EvaluateConfig(Config):
    """The [evaluate] table of a recipe: how translations are evaluated."""

    tokenize: str = Field(
        "13a", description='tokenizer of sacrebleu for BLEU; "none" for text that is already tokenised'
    )
    lowercase: bool = Field(False, description="whether BLEU ignores case")
    max_validation: int = Field(1000, ge=1, description="maximum number of sentences translated at each validation")
    validation_beam: int = Field(1, ge=1, description="beam size at each validation; the final test uses [decode]")

    @field_validator("tokenize")
    @classmethod
    def _is_known(cls, tokenize: str) -> str:
        if tokenize not in TOKENIZERS:
            raise ValueError(f"no such tokenizer; {suggest(tokenize, TOKENIZERS)}")
        return tokenize


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    config: EvaluateConfig | None = None,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Translate `sources` and compute the metrics. `references` is a list of lists, each as long as `sources`."""
    translations = []
    for candidates in translator.stream(sources, **settings):
        translations.append(candidates[0].text)
        if progress is not None:
            progress(1)
    return {**translation_metrics(translations, references, config or EvaluateConfig()), "translations": translations}


def translation_metrics(
    translations: Sequence[str], references: Sequence[Sequence[str]], config: EvaluateConfig
) -> dict[str, Any]:
    bleu = corpus_bleu(translations, references, config.tokenize, config.lowercase)
    chrf = corpus_chrf(translations, references)
    return {
        "bleu": bleu.value,
        "chrf": chrf.value,
        "signatures": {"bleu": bleu.signature, "chrf": chrf.signature},
        "sentences": len(translations),
    }
