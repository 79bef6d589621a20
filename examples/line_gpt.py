"""The small GPT of the experiments in this folder: its tokens are characters, and every line is a document."""

from pathlib import Path

import clearformer


def train(text: Path, run: Path, length: int, layers: int, width: int, tokens: int, steps: int):
    """Train from scratch and return the model; `length` is the maximum of a line, and `tokens` the number per step."""
    settings = {
        "data.train.documents": "line",
        "data.held_out": 0.01,
        "model.n_layers": layers,
        "model.d_model": width,
        "model.d_ff": 4 * width,
        "model.n_heads": 4,
        "model.max_length": length,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
        "train.tokens": tokens,
        "train.accumulation": 1,
        "train.steps": steps,
        "train.validate_every": max(1, steps // 5),
        "train.patience": 0,
        "optim.lr": 0.001,
    }
    clearformer.train(text=text, out=run, settings=[f"{key}={value}" for key, value in settings.items()])
    return clearformer.load(run, device="auto")
