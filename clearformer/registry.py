"""Names to things, resolved only when asked for.

    resolve("model", "transformer")  ->  clearformer.models.transformer:Transformer

The tables below list what ships with the package. A user's own class joins by `register`, or by an
entry point in the group `clearformer.<kind>`; nothing named in a downloaded file is ever imported.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from clearformer.errors import ConfigError, suggest

SHIPPED: dict[str, dict[str, str]] = {
    "model": {
        "alexnet": "clearformer.models.alexnet:AlexNet",
        "autoencoder": "clearformer.models.autoencoder:Autoencoder",
        "bert": "clearformer.models.bert:Bert",
        "birnn": "clearformer.models.birnn:BiRNN",
        "classifier": "clearformer.models.classifier:Classifier",
        "googlenet": "clearformer.models.googlenet:GoogLeNet",
        "gpt": "clearformer.models.gpt:GPT",
        "resnet": "clearformer.models.resnet:ResNet",
        "rnn-lm": "clearformer.models.rnn:RNN",
        "seq2seq": "clearformer.models.seq2seq:Seq2Seq",
        "speech-rnn": "clearformer.models.speech_rnn:SpeechRNN",
        "speech-transformer": "clearformer.models.speech_transformer:SpeechTransformer",
        "t5": "clearformer.models.t5:T5",
        "textcnn": "clearformer.models.textcnn:TextCNN",
        "transformer": "clearformer.models.transformer:Transformer",
        "vgg": "clearformer.models.vgg:VGG",
        "vit": "clearformer.models.vit:ViT",
    },
    "objective": {
        "causal-lm": "clearformer.objectives.causal_lm:CausalLM",
        "classification": "clearformer.objectives.classification:Classification",
        "ctc": "clearformer.objectives.ctc:CTC",
        "image-classification": "clearformer.objectives.image_classification:ImageClassification",
        "masked-lm": "clearformer.objectives.masked_lm:MaskedLM",
        "prefix-lm": "clearformer.objectives.prefix_lm:PrefixLM",
        "reconstruction": "clearformer.objectives.reconstruction:Reconstruction",
        "sentence-score": "clearformer.objectives.sentence_score:SentenceScore",
        "span-corruption": "clearformer.objectives.span_corruption:SpanCorruption",
        "token-classification": "clearformer.objectives.classification:TokenClassification",
        "translation": "clearformer.objectives.translation:Translation",
    },
    "data": {
        "causal-lm": "clearformer.data.corpora:StreamCorpora",
        "prefix-lm": "clearformer.data.corpora:StreamCorpora",
        "masked-lm": "clearformer.data.corpora:SentenceCorpora",
        "sentence-score": "clearformer.data.corpora:SentenceCorpora",
        "span-corruption": "clearformer.data.corpora:TextCorpora",
        "classification": "clearformer.data.corpora:LabelCorpora",
        "image-classification": "clearformer.data.images:ImageCorpora",
        "ctc": "clearformer.data.corpora:SpeechCorpora",
        "reconstruction": "clearformer.data.images:AlbumCorpora",
        "token-classification": "clearformer.data.corpora:TagCorpora",
        "translation": "clearformer.data.corpora:PairCorpora",
    },
    "task": {
        "causal-lm": "clearformer.tasks.causal_lm:CausalLMTask",
        "prefix-lm": "clearformer.tasks.prefix_lm:PrefixLMTask",
        "masked-lm": "clearformer.tasks.masked_lm:MaskedLMTask",
        "sentence-score": "clearformer.tasks.sentence_score:SentenceScoreTask",
        "span-corruption": "clearformer.tasks.span_corruption:SpanCorruptionTask",
        "classification": "clearformer.tasks.classification:ClassificationTask",
        "image-classification": "clearformer.tasks.image_classification:ImageClassificationTask",
        "ctc": "clearformer.tasks.speech:SpeechTask",
        "reconstruction": "clearformer.tasks.reconstruction:ReconstructionTask",
        "token-classification": "clearformer.tasks.tagging:TaggingTask",
        "translation": "clearformer.tasks.translation:TranslationTask",
    },
    "tokenizer": {
        "char": "clearformer.text.tokenizers.char:build",
        "word": "clearformer.text.tokenizers.word:build",
        "bpe": "clearformer.text.tokenizers.bpe:build",
        "byte-bpe": "clearformer.text.tokenizers.byte_bpe:build",
        "wordpiece": "clearformer.text.tokenizers.wordpiece:build",
        "unigram": "clearformer.text.tokenizers.unigram:build",
    },
}

_added: dict[str, dict[str, Any]] = {kind: {} for kind in SHIPPED}


def register(kind: str, name: str, thing: Any) -> Any:
    """Add a thing of the user's under a new name; returns it, so that it can close a class definition."""
    if kind not in SHIPPED:
        raise ConfigError(f"`{kind}` is no kind of thing that can be registered", suggest(kind, SHIPPED))
    table = _added.setdefault(kind, {})
    if name in SHIPPED[kind] or table.get(name, thing) is not thing:
        raise ConfigError(f"there is already a {kind} called `{name}`", "choose another name")
    table[name] = thing
    return thing


def names(kind: str) -> list[str]:
    """Every name that `resolve` would take, sorted."""
    plugins = {point.name for point in entry_points(group=f"clearformer.{kind}")}
    return sorted({*SHIPPED.get(kind, {}), *_added.get(kind, {}), *plugins})


def resolve(kind: str, name: str) -> Any:
    """The thing called `name`, imported now if it was not already."""
    if name in _added.get(kind, {}):
        return _added[kind][name]
    if name in SHIPPED.get(kind, {}):
        module, attribute = SHIPPED[kind][name].split(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=f"clearformer.{kind}", name=name):
        return point.load()
    raise ConfigError(f"there is no {kind} called `{name}`", suggest(name, names(kind)))
