"""Hugging Face folders as run folders, and back again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import clearformer
from clearformer.errors import CheckpointError
from clearformer.loading.open import open_model
from clearformer.verbs.export import export_model
from clearformer.verbs.import_ import import_model
from clearformer.verbs.load import load


@pytest.mark.parametrize("kind", ["marian", "t5", "gpt2", "llama", "bert"])
def test_what_is_imported_and_exported_comes_back(hub: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    """Every tensor bit by bit, and a run folder whose recipe parses like any other."""
    report = import_model(hub(kind, is_opened=kind == "llama"), tmp_path / "run")
    assert report["format"] == "huggingface"
    assert report["parameters"] == clearformer.inspect(tmp_path / "run")["parameters"]
    export_model(tmp_path / "run", tmp_path / "again")
    first, second = open_model(tmp_path / "hub"), open_model(tmp_path / "again")
    assert first.config == second.config
    if kind in ("gpt2", "llama"):
        openings = [load(tmp_path / name).opening for name in ("hub", "again", "run")]
        assert openings == [openings[0]] * 3
    again = second.network.state_dict()
    assert all(again[name].equal(tensor) for name, tensor in first.network.state_dict().items())
    text = "the dog sees a zebra"
    assert first.tokenizers[0].encode([text]) == second.tokenizers[0].encode([text])


def test_a_pickle_comes_in_through_import_alone(hub: Callable[..., Path], tmp_path: Path) -> None:
    path = hub("gpt2")
    model = AutoModelForCausalLM.from_pretrained(path)
    (path / "model.safetensors").unlink()
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    for verb in (load, clearformer.inspect, lambda folder: export_model(folder, tmp_path / "out")):
        with pytest.raises(CheckpointError, match="a pickle, which can run code when opened"):
            verb(path)
    import_model(path, tmp_path / "run")
    found = open_model(tmp_path / "run").network.state_dict()["embedding.weight"]
    assert found.equal(model.transformer.wte.weight)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


def test_a_pickle_that_holds_more_than_tensors_is_refused(
    hub: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = hub("gpt2")
    (path / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": Evil()}, path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin cannot be read"):
        import_model(path, tmp_path / "run")
    assert "must not run" not in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_other_architectures_and_other_tensors_are_named(hub: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = hub("llama")
    file, config = path / "model.safetensors", path / "config.json"
    weights = load_file(file)
    lost = weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"lacks `model.layers.1.mlp.up_proj.weight`"):
        import_model(path, tmp_path / "run")
    save_file({**weights, "model.layers.1.mlp.up_proj.weight": lost, "model.layers.7.x": lost.clone()}, file)
    with pytest.raises(CheckpointError, match=r"has `model.layers.7.x`, which the configured model lacks"):
        load(path)
    told = config.read_text()
    config.write_text(told.replace('"model_type": "llama"', '"model_type": "gpt2"'))
    with pytest.raises(CheckpointError, match=r"lacks `n_layer`"):
        load(path)
    config.write_text(told.replace('"model_type": "llama"', '"model_type": "mamba"'))
    with pytest.raises(CheckpointError, match=r"(?s)unsupported model_type `mamba`.*llama"):
        import_model(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_there_is_left_alone(hub: Callable[..., Path], tmp_path: Path) -> None:
    path = hub("gpt2")
    for make in (import_model, export_model):
        with pytest.raises(CheckpointError, match="already exists and is not empty"):
            make(path, path)
    with pytest.raises(CheckpointError, match="there is no model"):
        import_model(tmp_path / "nothing", tmp_path / "run")
    (tmp_path / "bare").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        import_model(tmp_path / "bare", tmp_path / "run")
