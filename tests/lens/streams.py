"""Small random Transformers behind their handles: every form of norm, position and head that a stream can have."""

from typing import Any

import torch

from clearformer.generation.decode import DecodeConfig
from clearformer.handles.classifier import Classifier
from clearformer.handles.handle import Handle
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.tagger import Tagger
from clearformer.handles.translator import Translator
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

WORDS = "the a dog cat man sees likes hears tree river book le chien chat"
TEXT = "the dog sees a tree"
CLASSES = ["bad", "fair", "good"]
SIZES: dict[str, Any] = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11}
LAYERS = {"n_encoder_layers": 2, "n_decoder_layers": 3}
BERT = {"kind": "bert", **SIZES, "n_layers": 2}

KINDS: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", **SIZES, "n_layers": 3},
    "gpt-post": {"kind": "gpt", **SIZES, "n_layers": 3, "residual": "post"},
    "llama": {
        "kind": "gpt", **SIZES, "n_layers": 2, "n_heads": 6, "n_kv_heads": 3, "d_head": 4, "norm": "rms", "bias": False,
        "activation": "swiglu", "positions": {"kind": "rotary"}, "tied": False, "head_bias": True,
    },
    "alibi": {"kind": "gpt", **SIZES, "n_layers": 2, "positions": {"kind": "alibi"}, "scale_embedding": True},
    "gpt-batch-norm": {"kind": "gpt", **SIZES, "n_layers": 3, "norm": "batch", "d_value": 3},
    "gpt-without-norms": {"kind": "gpt", **SIZES, "n_layers": 2, "norm": "none", "positions": {"kind": "none"}},
    "transformer": {"kind": "transformer", **SIZES, **LAYERS},
    "transformer-batch-norm": {"kind": "transformer", **SIZES, **LAYERS, "norm": "batch", "residual": "post"},
    "transformer-post": {"kind": "transformer", **SIZES, **LAYERS, "residual": "post", "share": "none"},
    "t5": {"kind": "t5", **SIZES, **LAYERS, "d_head": 3},
    "bert": BERT,
    "classifier": {"kind": "classifier", "base": BERT, "pooling": "mean"},
    "classifier-gpt": {"kind": "classifier", "base": {"kind": "gpt", **SIZES, "n_layers": 2}, "pooling": "last"},
}  # fmt: skip
LANGUAGE_MODELS = ["gpt", "gpt-post", "llama", "alibi", "gpt-batch-norm", "gpt-without-norms"]
TRANSLATORS = ["transformer", "transformer-batch-norm", "transformer-post", "t5"]
# Running statistics that are not those of the activations make logits of thousands: probabilities of exactly 0 and 1.
MODERATE = [name for name in TRANSLATORS if name != "transformer-batch-norm"]
CLASSIFIERS = ["classifier", "classifier-gpt"]


def tokenizer() -> Tokenizer:
    return train_tokenizer([WORDS] * 2, TextConfig(kind="word", min_frequency=1, vocab_size=50, extra=["[MASK]"]))


def small_handle(name: str, dtype: torch.dtype = torch.float32) -> Handle:
    """A model whose weights are all random, gains and biases too, so that each of them matters."""
    words, table = tokenizer(), KINDS[name]
    kind = table["kind"]
    sizes = {"vocab": words.vocab_size}
    if name in TRANSLATORS:
        sizes = {"source_vocab": words.vocab_size, "target_vocab": words.vocab_size}
    if name in CLASSIFIERS:
        table = {**table, "base": {**table["base"], **sizes}}
        sizes = {"n_classes": len(CLASSES)}
    torch.manual_seed(0)
    model = build_model(parse_model({**table, **sizes}, "x.toml"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for name_of_buffer, buffer in model.named_buffers():
            if name_of_buffer.endswith(("running_mean", "running_var")):
                buffer += 0.3 * torch.rand_like(buffer)
    model = model.to(dtype).eval()
    match kind:
        case "gpt":
            return LanguageModel(model, words, name=name, opening=[words.bos_id])
        case "bert":
            return MaskedModel(model, words, name)
        case "classifier":
            return Classifier(model, words, CLASSES, name)
    return Translator(model, words, words, DecodeConfig(beam=3, max_ratio=1, max_extra=2), name)


def small_tagger() -> Tagger:
    """A tagger in float64, with random weights."""
    words = tokenizer()
    torch.manual_seed(0)
    base = {**BERT, "vocab": words.vocab_size}
    table = {"kind": "classifier", "base": base, "n_classes": len(CLASSES), "pooling": "none"}
    return Tagger(build_model(parse_model(table, "x.toml")).double(), words, CLASSES, "tagger")
