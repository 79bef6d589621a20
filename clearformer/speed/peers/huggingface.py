"""Hugging Face: `generate` of Marian and GPT-2, and Marian in a plain training loop, eager or compiled."""

import tomllib
from typing import Any

from clearformer.speed.batches import read
from clearformer.speed.context import Context, rates, set_threads, training_rates
from clearformer.speed.models import EOS, GPT_SIZES, SIZES, gpt_folder, marian_folder, random_ids


def opened(kind: str, folder: Any, context: Context, precision: str) -> Any:
    import torch
    import transformers

    set_threads(context)
    model = getattr(transformers, kind).from_pretrained(folder)
    return model.to(context.device, getattr(torch, precision)).eval()


def generated(model: Any, rows: list[list[int]], length: int, context: Context, **settings: Any) -> dict[str, Any]:
    """Time `generate` on rows of equal length, with exactly `length` new tokens."""
    import torch

    ids = torch.tensor(rows, device=context.device)
    settings |= {"attention_mask": torch.ones_like(ids), "do_sample": False}
    settings |= {"min_new_tokens": length, "max_new_tokens": length}
    outputs: list[list[int]] = []

    @torch.inference_mode()
    def work() -> None:
        outputs[:] = model.generate(input_ids=ids, **settings)[:, -length:].tolist()

    return {"values": rates(work, len(rows) * length, context), "tokens": outputs[:4]}


def translate(context: Context, size: str, batch: int, beam: int, length: int, precision: str = "float32") -> Any:
    model = opened("MarianMTModel", marian_folder(context, size), context, precision)
    rows = [[*row, EOS] for row in random_ids(batch, length - 1, SIZES[size][-1])]
    return generated(model, rows, length, context, num_beams=beam)


def generate(context: Context, size: str, batch: int, prompt: int, length: int, precision: str) -> Any:
    model = opened("GPT2LMHeadModel", gpt_folder(context, size), context, precision)
    return generated(model, random_ids(batch, prompt, GPT_SIZES[size][-1]), length, context)


def train_marian(context: Context, is_compiled: bool = False) -> dict[str, Any]:
    """Target tokens per second of a Marian with the sizes of our run, on its batches, which are on the device."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    with (context.run / "recipe.toml").open("rb") as file:
        ours = tomllib.load(file)["model"]
    side: dict[str, Any] = {"ffn_dim": ours["d_ff"], "attention_heads": ours["n_heads"]}
    sizes = {f"{end}_{key}": value for end in ("encoder", "decoder") for key, value in side.items()}
    sizes |= {"encoder_layers": ours["n_encoder_layers"], "decoder_layers": ours["n_decoder_layers"]}
    vocab = max(ours["source_vocab"], ours["target_vocab"])
    ids: dict[str, Any] = {
        "pad_token_id": 0,
        "decoder_start_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 512,
    }
    config = MarianConfig(
        vocab_size=vocab, d_model=ours["d_model"], dropout=ours["dropout"], use_cache=False, **sizes, **ids
    )
    torch.set_float32_matmul_precision("high")
    model: Any = MarianMTModel(config)
    model.to(context.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, fused=True)
    network = torch.compile(model) if is_compiled else model
    batches = read(context)
    on_gpu = context.device == "cuda"

    def step(i: int) -> int:
        batch = batches[i % len(batches)]
        with torch.autocast(context.device, torch.bfloat16, enabled=on_gpu):
            inputs = {"input_ids": batch["source"], "attention_mask": batch["source_mask"].long()}
            loss = network(**inputs, decoder_input_ids=batch["target"], labels=batch["labels"]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return int(batch["n_tokens"])

    values = training_rates(step, context, len(batches))
    return {"values": values, "peak_gb": peak(context)}


def peak(context: Context) -> float | None:
    """The most memory that torch allocated on the GPU, in GB."""
    import torch

    return round(torch.cuda.max_memory_allocated() / 1e9, 1) if context.device == "cuda" else None
