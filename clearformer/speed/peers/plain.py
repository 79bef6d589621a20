"""Plain PyTorch, as a user would write it without a library: nn.Transformer, nn.LSTM, and `import torch` alone."""

import math
import sys
import tomllib
from typing import Any

from clearformer.speed.batches import read
from clearformer.speed.context import Context, seconds_of, set_threads, training_rates


def import_torch(context: Context) -> dict[str, Any]:
    """Seconds of `python -c "import torch"`: no command that needs torch can be faster."""
    return {"values": seconds_of([sys.executable, "-c", "import torch"], context)}


def read_recipe(context: Context) -> dict[str, Any]:
    with (context.run / "recipe.toml").open("rb") as file:
        return tomllib.load(file)


def train_transformer(context: Context) -> dict[str, Any]:
    """Target tokens per second of nn.Transformer with the sizes of our run, on its batches, with Adam and clipping."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    set_threads(context)
    recipe = read_recipe(context)
    ours, smoothing = recipe["model"], recipe["objective"].get("label_smoothing", 0.0)
    width, vocab = ours["d_model"], max(ours["source_vocab"], ours["target_vocab"])
    embedding = nn.Embedding(vocab, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    sizes = (width, ours["n_heads"], ours["n_encoder_layers"], ours["n_decoder_layers"], ours["d_ff"], ours["dropout"])
    transformer = nn.Transformer(*sizes, batch_first=True, norm_first=ours["residual"] == "pre")
    model = nn.ModuleList([embedding, transformer]).to(context.device).train()
    optimizer = torch.optim.Adam(model.parameters(), recipe["optim"]["lr"], fused=True)
    batches, table = read(context), sinusoids(512, width).to(context.device)

    def embed(tokens: Any) -> Any:
        embedded = embedding(tokens) * math.sqrt(width) + table[: tokens.size(1)]
        return F.dropout(embedded, ours["dropout"])

    def step(i: int) -> int:
        batch = batches[i % len(batches)]
        padding, length = ~batch["source_mask"], batch["target"].size(1)
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=torch.device(context.device))
        masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal}
        hidden = transformer(embed(batch["source"]), embed(batch["target"]), tgt_is_causal=True, **masks)
        logits = (hidden @ embedding.weight.t()).flatten(0, 1)
        F.cross_entropy(logits, batch["labels"].flatten(), label_smoothing=smoothing).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return int(batch["n_tokens"])

    return {"values": training_rates(step, context, 8)}


def sinusoids(length: int, width: int) -> Any:
    """The position table of Vaswani et al. 2017."""
    import torch

    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def train_lstm(context: Context) -> dict[str, Any]:
    """Target tokens per second of nn.LSTM with the sizes of our run, on its batches, with SGD and clipping."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    set_threads(context)
    recipe, batches = read_recipe(context), read(context)
    ours = recipe["model"]
    width, vocab, p = ours["d_model"], ours["vocab"], ours["dropout"]
    drop, embedding, head = nn.Dropout(p), nn.Embedding(vocab, width), nn.Linear(width, vocab)
    lstm = nn.LSTM(width, width, ours["n_layers"], batch_first=True, dropout=p)
    model = nn.ModuleList([embedding, lstm, head]).to(context.device).train()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    state: Any = None

    def step(i: int) -> int:
        nonlocal state
        batch = batches[i % len(batches)]
        state = None if i % len(batches) == 0 else tuple(part.detach() for part in state)
        hidden, state = lstm(drop(embedding(batch["tokens"])), state)
        F.cross_entropy(head(drop(hidden)).flatten(0, 1), batch["labels"].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe["train"]["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return int(batch["n_tokens"])

    return {"values": training_rates(step, context, 50)}
