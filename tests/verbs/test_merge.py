"""LoRA adapters that peft wrote, merged into their base."""

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from clearformer.errors import CheckpointError
from clearformer.verbs.import_ import import_model
from clearformer.verbs.load import load
from clearformer.verbs.merge import merge


def adapter(base: Path, folder: Path) -> Any:
    """A LoRA adapter of peft's, with both matrices random, and the adapted model."""
    from peft import LoraConfig, get_peft_model

    model = AutoModelForCausalLM.from_pretrained(base)
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "up_proj"])).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    adapted.save_pretrained(folder)
    return adapted


@torch.no_grad()
def test_an_adapter_goes_into_the_weights_of_its_base(hub: Callable[..., Path], tmp_path: Path) -> None:
    """Over the Hugging Face folder that it names, and over a run folder made of that."""
    base = hub("llama")
    theirs = adapter(base, tmp_path / "adapter")
    import_model(base, tmp_path / "run")
    merge(tmp_path / "adapter", tmp_path / "merged")
    merge(tmp_path / "adapter", tmp_path / "also", base=tmp_path / "run")
    tokens = torch.tensor([[3, 4, 5, 7]])
    said = theirs.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=9, do_sample=False)
    for folder in ("merged", "also"):
        ours = load(tmp_path / folder)
        assert ours.generate(["the a dog man"], temperature=0, max_new=9)[0][0].tokens == [
            *takewhile(bool, said[0, 4:].tolist())
        ]


def test_an_adapter_for_another_base_is_refused(hub: Callable[..., Path], tmp_path: Path) -> None:
    adapter(hub("llama"), tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"adapts `model.layers.*, which the base model lacks\nhint: .*--base"):
        merge(tmp_path / "adapter", tmp_path / "out", base=hub("gpt2", "other"))
    with pytest.raises(CheckpointError, match=r"does not fit the model: .* has the shape \(3, 28\), not \(3, 12\)"):
        merge(tmp_path / "adapter", tmp_path / "out", base=hub("llama", "less", hidden_size=12))
    (tmp_path / "hub").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"does not exist here\nhint: .*--base"):
        merge(tmp_path / "adapter", tmp_path / "out")
    with pytest.raises(CheckpointError, match="is not an adapter"):
        merge(tmp_path / "moved", tmp_path / "out")
    assert not (tmp_path / "out").exists()
