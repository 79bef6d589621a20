"""Handles around small random models of many architectures, with sizes that are distinct primes where they may be."""

from typing import Any

import torch

from clearformer.data.sound import SoundConfig
from clearformer.handles.classifier import Classifier
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

LINES = ["a king and a queen saw the old city", "the man gave a woman the bike", "one of the women was here"]
TEXT = "the king saw a bike"  # 5 words
CLASSES = ("bad", "fair", "good")
TRANSFORMER = {"d_model": 14, "d_ff": 13, "n_heads": 7, "max_length": 61, "dropout": 0.0}


def tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


def network(table: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return build_model(parse_model(table, "x.toml"))


def small(kind: str, **sizes: Any) -> Any:
    """A handle of the named kind: its architecture, with `-of-classifier` as the base of one."""
    tok = tokenizer()
    V = tok.vocab_size
    name, _, base = kind.partition("-of-")
    match name:
        case "transformer" | "t5":
            table = {"n_encoder_layers": 2, "n_decoder_layers": 3, **TRANSFORMER}
            if name == "t5":
                del table["max_length"]
        case "seq2seq":
            table = {"attention": "additive", "d_model": 7, "d_embedding": 10, "dropout": 0.0}
        case "gpt" | "bert":
            table = {"vocab": V, "n_layers": 3, **TRANSFORMER}
        case "rnn-lm":
            table = {"vocab": V, "n_layers": 2, "d_model": 11, "max_length": 61, "dropout": 0.0}
        case "birnn":
            table = {"vocab": V, "n_layers": 2, "d_model": 10, "d_embedding": 7, "dropout": 0.0}
        case "textcnn":
            table = {"vocab": V, "widths": (2, 3), "d_model": 10, "d_embedding": 7, "dropout": 0.0}
        case "speech-rnn":
            table = {"vocab": V, "channels": 7, "n_layers": 2, "d_model": 10, "strides": (2,), "dropout": 0.0}
        case "speech-transformer":
            table = {"vocab": V, "channels": 7, "n_layers": 2, "strides": (2,), **TRANSFORMER}
    if name in ("transformer", "t5", "seq2seq"):
        vocabularies = {"source_vocab": V, "target_vocab": V}
        return Translator(network({"kind": name} | vocabularies | table | sizes), tok, tok, name=name)
    if base == "classifier":
        inner = {"kind": name} | table | sizes
        return Classifier(network({"kind": "classifier", "base": inner, "n_classes": 3}), tok, CLASSES, name)
    model = network({"kind": name} | table | sizes)
    if name.startswith("speech"):
        return Transcriber(model, tok, SoundConfig(rate=8000, n_mels=7), name)
    handles = {"gpt": LanguageModel, "rnn-lm": LanguageModel}
    return handles.get(name, MaskedModel)(model, tok, name=name)
