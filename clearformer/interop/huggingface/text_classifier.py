"""Convert text classifiers and taggers to our format and back. The head decides which class of a model family it is:

    pooling    ours                         theirs
    none       W h_t + b at every token     BertForTokenClassification
    pooler     W tanh(W_p h_1) + b          BertForSequenceClassification
    last       W h_n + b                    GPT2ForSequenceClassification, whose head has no bias

The export of the last row is exact all the same: h_n = g x + β is the output of a norm, and W (h_n + δ) = W h_n + b for
δ = W⁺ b, so that β + δ in place of β gives the bias. The norm of Llama has no β: LlamaForSequenceClassification is only
imported. No class of theirs takes the mean or the maximum over the tokens of a BERT. Files vary here, too: an old
BertForTokenClassification contains a pooler that it does not use.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.class_names import class_settings
from clearformer.interop.huggingface.folder import Shapes, precision, write_folder
from clearformer.interop.names import Rows, inside, rows_of, to_ours, to_theirs
from clearformer.models.classifier import ClassifierConfig

TOKENS, TEXTS = "ForTokenClassification", "ForSequenceClassification"
FAMILIES = {"bert": "Bert", "megatron-bert": "MegatronBert", "roberta": "Roberta", "gpt2": "GPT2"}  # by model_type
IMPORTED = (*FAMILIES, "llama")
POOLINGS = {"none": TOKENS, "pooler": TEXTS, "last": TEXTS}
HEAD = rows_of({"classifier.": "classifier."})
ROBERTA_HEAD = rows_of({"base.pooler.": "classifier.dense.", "classifier.": "classifier.out_proj."})
SCORE = "score.weight"
HEADS = ("classifier.weight", "classifier.out_proj.weight", SCORE)  # at most one of them is in a file
POOLER = "pooler.dense."


def has_head(shapes: Shapes) -> bool:
    """Whether these tensors belong to a model with a classification head."""
    return any(name in shapes for name in HEADS)


def import_config(theirs: Mapping[str, Any], model_type: str, converter: str, shapes: Shapes, where: str) -> Any:
    """Return our configuration of a classifier from `theirs`, its config.json, and the `shapes` of its tensors."""
    if model_type not in IMPORTED:
        known = ", ".join(IMPORTED)
        raise CheckpointError(f"{where}: classifiers of type {model_type} are not supported", f"supported: {known}")
    n_classes, problem = shapes[next(name for name in HEADS if name in shapes)][0], theirs.get("problem_type")
    if problem == "multi_label_classification" or (problem == "regression" and n_classes > 1):
        what = "several values" if problem == "regression" else "any number of classes"
        raise CheckpointError(
            f"{where}: the model predicts {what} per text (problem_type = {problem}), which is not supported",
            "import a model that predicts one class or one value per text",
        )
    base = import_module(converter).import_config(theirs, where)
    dropouts = (theirs.get(name) for name in ("classifier_dropout", "hidden_dropout_prob"))
    dropout = next((p for p in dropouts if p is not None), 0.1)
    pooling = pooling_of(theirs, shapes, where)
    if pooling == "last":
        base = base.changed(tied=True)  # the file has no output layer for words
    return ClassifierConfig.parse(
        {"base": {**base.model_dump(exclude_unset=True), "kind": base.kind}, "pooling": pooling, "n_classes": n_classes}
        | {"dropout": dropout},
        where,
    )


def pooling_of(theirs: Mapping[str, Any], shapes: Shapes, where: str) -> str:
    """Return the pooling of a classifier, from its class if config.json names one, or else from its tensors."""
    name = str((theirs.get("architectures") or [""])[0])
    if SCORE in shapes:
        return "last"
    if name.endswith(TOKENS):
        return "none"
    if name.endswith(TEXTS):
        return "pooler"
    if "For" in name:
        raise CheckpointError(
            f"{where}: the architecture {name} is not supported",
            f"supported: classes that end with {TEXTS} or {TOKENS}",
        )
    is_pooled = HEADS[1] in shapes or any(POOLER in tensor for tensor in shapes)
    return "pooler" if is_pooled else "none"


def import_weights(
    theirs: Mapping[str, Tensor], config: ClassifierConfig, model_type: str, converter: str, where: str
) -> dict[str, Tensor]:
    """Convert the tensors to our format. A pooler that the model does not use is dropped."""
    from clearformer.interop.huggingface.bert import BUFFERS, modern_name

    encoder = import_module(converter)
    if config.pooling == "last":
        W = theirs[SCORE]
        body = encoder.import_weights({n: tensor for n, tensor in theirs.items() if n != SCORE}, config.base, where)
        head = {"classifier.weight": W.clone(), "classifier.bias": W.new_zeros(len(W))}
        return {**{f"base.{name}": tensor for name, tensor in body.items()}, **head}
    rows = tensor_rows(config, model_type, encoder)
    is_pooled = any(POOLER in name for names in rows.values() for name in names)
    unused = () if is_pooled else (f"{encoder.PREFIX}{POOLER}weight", f"{encoder.PREFIX}{POOLER}bias")
    tensors = {modern_name(name): tensor for name, tensor in theirs.items() if not name.endswith(BUFFERS)}
    return to_ours({name: tensor for name, tensor in tensors.items() if name not in unused}, rows, where)


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
    return {**encoder.export_weights(body, config.base), SCORE: W.clone()}
