"""nanoGPT from a checkout: its model.py, compiled and optimised as its train.py does, on the batches of our run."""

import sys
import tomllib
from importlib import import_module
from typing import Any

from clearformer.speed.batches import read
from clearformer.speed.context import Context, training_rates
from clearformer.speed.peers.huggingface import peak


def train(context: Context, lr: float, warmup: int, steps: int) -> dict[str, Any]:
    """Target tokens per second, and the loss of each of the first `steps` steps."""
    import torch

    assert context.nanogpt is not None
    sys.path.insert(0, context.nanogpt)
    nanogpt: Any = import_module("model")
    with (context.run / "recipe.toml").open("rb") as file:
        recipe = tomllib.load(file)
    ours, batches = recipe["model"], read(context)
    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    sizes = {"n_layer": ours["n_layers"], "n_head": ours["n_heads"], "n_embd": ours["d_model"]}
    sizes |= {"block_size": batches[0]["tokens"].size(1), "vocab_size": ours["vocab"], "bias": ours["bias"]}
    model = nanogpt.GPT(nanogpt.GPTConfig(dropout=0.0, **sizes)).to(context.device)
    optimizer = model.configure_optimizers(0.1, lr, (0.9, 0.95), context.device)
    network = torch.compile(model)
    losses: list[Any] = []

    def step(i: int) -> int:
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (i + 1) / warmup)
        batch = batches[i % len(batches)]
        with torch.autocast(context.device, torch.bfloat16, enabled=context.device == "cuda"):
            _, loss = network(batch["tokens"], batch["labels"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i < steps:
            losses.append(loss.detach())
        return int(batch["n_tokens"])

    values = training_rates(step, context, steps)
    curve = [[i + 1, round(float(loss), 4)] for i, loss in enumerate(losses)]
    return {"values": values, "losses": curve, "peak_gb": peak(context)}
