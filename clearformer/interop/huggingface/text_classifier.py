"""Write text classifiers and taggers for Hugging Face. The head decides which class of a model family computes it:

    pooling    ours                         theirs
    none       W h_t + b at every token     BertForTokenClassification
    pooler     W tanh(W_p h_1) + b          BertForSequenceClassification
    last       W h_n + b                    GPT2ForSequenceClassification, whose head has no bias

The last row is exact all the same: h_n = g x + β is the output of a norm, and W (h_n + δ) = W h_n + b for δ = W⁺ b, so
that β + δ in place of β gives the bias. No class of theirs takes the mean or the maximum over the tokens of a BERT.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.class_names import class_settings
from clearformer.interop.huggingface.folder import precision, write_folder
from clearformer.interop.names import Rows, inside, rows_of, to_theirs
from clearformer.models.classifier import ClassifierConfig

TOKENS, TEXTS = "ForTokenClassification", "ForSequenceClassification"
FAMILIES = {"bert": "Bert", "megatron-bert": "MegatronBert", "roberta": "Roberta", "gpt2": "GPT2"}  # by model_type
POOLINGS = {"none": TOKENS, "pooler": TEXTS, "last": TEXTS}
HEAD = rows_of({"classifier.": "classifier."})
ROBERTA_HEAD = rows_of({"base.pooler.": "classifier.dense.", "classifier.": "classifier.out_proj."})
SCORE: Rows = {"classifier.weight": ("score.weight",)}


def check(config: ClassifierConfig, model_type: str) -> None:
    """Raise an error unless Hugging Face has a class with this encoder and this head."""
    if model_type not in FAMILIES:
        raise CheckpointError(
            f"transformers has no classifier on a {config.base.kind} of this form", "export it with --format onnx"
        )
    pooling, is_gpt = config.pooling, model_type == "gpt2"
    if pooling not in POOLINGS or is_gpt != (pooling == "last"):
        hint = "export it with --format onnx, or train again with --exportable"
        raise CheckpointError(
            f"transformers has no {FAMILIES[model_type]} classifier with pooling = {pooling}, which this model has",
            "export it with --format onnx" if is_gpt else hint,
        )


def export_folder(
    folder: Path,
    config: ClassifierConfig,
    weights: Mapping[str, Tensor],
    model_type: str,
    converter: str,
    classes: Sequence[str],
    tokens: Mapping[str, int],
) -> None:
    """Write a folder for `from_pretrained`. `converter` is the module that converts the encoder, config.base.

    `tokens` has the arguments of its `export_config`, ids of special tokens. A regression has no classes.
    """
    check(config, model_type)
    encoder: Any = import_module(converter)
    settings = {
        **encoder.export_config(config.base, **tokens),
        "architectures": [FAMILIES[model_type] + POOLINGS[config.pooling]],
        **(class_settings(classes or ["value"])),
        **({} if classes else {"problem_type": "regression"}),
    }
    if config.pooling == "last":
        theirs = score_weights(encoder, weights, config)
    else:
        theirs = to_theirs(weights, tensor_rows(config, model_type, encoder), "the model")
    write_folder(folder, {**settings, **precision(theirs)}, theirs)


def tensor_rows(config: ClassifierConfig, model_type: str, encoder: Any) -> Rows:
    """Return the name table of a classifier on a BERT. RoBERTa has its pooler in the head."""
    rows = inside("base.", "", encoder.encoder_rows(config.base, encoder.PREFIX))
    return {**rows, **(ROBERTA_HEAD if (model_type, config.pooling) == ("roberta", "pooler") else HEAD)}


def score_weights(encoder: Any, weights: Mapping[str, Tensor], config: ClassifierConfig) -> dict[str, Tensor]:
    """Return the tensors of a GPT2ForSequenceClassification, with the bias of the head in the bias of the last norm."""
    body = {name.removeprefix("base."): tensor for name, tensor in weights.items() if name.startswith("base.")}
    W, b = weights["classifier.weight"], weights["classifier.bias"]
    shift = torch.linalg.pinv(W.double()) @ b.double()
    if not torch.allclose(W.double() @ shift, b.double(), rtol=1e-6, atol=1e-6):
        raise CheckpointError(
            "the rows of the head are linearly dependent, and GPT2ForSequenceClassification has no bias for it",
            "export it with --format onnx",
        )
    norm = "decoder.norm.bias"
    body[norm] = (body[norm].double() + shift).to(W.dtype)
    return {**encoder.export_weights(body, config.base), "score.weight": W.clone()}
