"""A classifier on a GPT in transformers, whose head has no bias: the bias is in the last norm."""

from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification

from clearformer.checkpoint import weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.interop.huggingface.convert import export_any
from clearformer.models.build import build_model, parse_model


@torch.no_grad()
def test_a_classifier_on_a_gpt(tmp_path: Path) -> None:
    base = {"kind": "gpt", "vocab": 31, "n_layers": 2, "d_model": 14, "d_ff": 23, "n_heads": 2, "max_length": 37}
    config = parse_model({"kind": "classifier", "base": base, "pooling": "last", "n_classes": 3}, "[model]")
    torch.manual_seed(0)
    network = build_model(config).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids = {"pad": 0, "bos": 1, "eos": 2}
    assert export_any(tmp_path, config, weights_of(network), ids, ["a", "b", "c"]) == "gpt2"
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokens = torch.randint(3, 31, (5, 11))
    tokens[1, 4:], tokens[3, 7:] = 0, 0
    ours = network(EncoderBatch(tokens, tokens != 0))
    said = theirs(tokens, attention_mask=(tokens != 0).long()).logits
    torch.testing.assert_close(said, ours, rtol=0, atol=1e-4 * max(1.0, float(ours.abs().max())))
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
