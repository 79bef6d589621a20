"""What a model writes, and how likely it finds what others wrote."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from clearformer.errors import ConfigError
from clearformer.handles import gaps
from clearformer.handles.chat import Chat
from clearformer.handles.classifier import Classifier
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.language_model import Continuation, LanguageModel, Score
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.reply import Reply
from clearformer.handles.tagger import Tagger
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.loading.handles import USES, load, load_as
from clearformer.verbs.corpora import Name


def generate(
    model: Name, prompts: Sequence[str], *, chat: bool = False, device: str = "cpu", **settings: Any
) -> list[list[Continuation]]:
    """Continuations of each prompt by a language model, or answers: with `chat`, or of an encoder–decoder such as T5.

    The settings are those of `LanguageModel.generate`.
    """
    return writer(model, chat, device).generate(prompts, **settings)


def writer(model: Name, chat: bool = False, device: str = "cpu") -> LanguageModel:
    """A model that writes; of any other kind, `load_as` says what it is instead."""
    found = load(model, device)
    if isinstance(found, Translator) and not chat:
        return Reply(found)
    found = found if isinstance(found, LanguageModel) else load_as(LanguageModel, model, device)
    return Chat(found) if chat else found


def score(
    model: Name, texts: Sequence[str], *, source: str | None = None, closed: bool | None = None, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Texts ranked by how likely a model finds them: text, logprob, tokens, perplexity, the likeliest first.

    A language model judges them by themselves, a translator as translations of `source`, their ends always counted. A
    masked model gives pseudo-log-likelihoods (generation/masked.py): to be compared with one another alone; a
    scorer of sentences the log-probability that nothing is wrong with a text.
    """
    judge = load(model, device)
    if isinstance(judge, Classifier | Tagger | ImageClassifier | ImageAutoencoder | Transcriber):
        is_one, uses = USES[type(judge)]
        raise ConfigError(f"{model} is {is_one}, which finds no text likely", f"with it you can: {uses}")
    if isinstance(judge, Translator):
        if source is None:
            raise ConfigError(f"{model} is a translator", "say what the texts translate, with --source")
        logprobs = judge.score([source] * len(texts), texts)
        counts = [len(ids) + 1 for ids in judge.target_tokenizer.encode(texts)]
        scores = [Score(*row) for row in zip(texts, logprobs, counts)]
    else:
        if source is not None:
            raise ConfigError(f"{model} is no translator", "leave --source out")
        scores = judge.score(texts, closed)
    rows = [{**asdict(row), "perplexity": row.perplexity} for row in scores]
    return sorted(rows, key=lambda row: -row["logprob"])


def fill(
    model: Name, text: str, n: int = 5, candidates: Sequence[str] | None = None, *, device: str = "cpu"
) -> list[dict[str, Any]]:
    """The best words for the gap ___ of a text: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.fill(filler(model, device), text, n, candidates)]


def repair(model: Name, text: str, n: int = 5, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The best ways to add the word that a sentence lacks: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.repair(filler(model, device), text, n)]


def filler(model: Name, device: str) -> LanguageModel | MaskedModel:
    """A model that knows which words go together; of any other kind, `load_as` says what it is instead."""
    found = load(model, device)
    return found if isinstance(found, LanguageModel | MaskedModel) else load_as(LanguageModel, model, device)
