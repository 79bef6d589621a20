"""Nothing is allocated because a recipe or a configuration says so."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, MachineError
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.memory import peak_mb
from clearformer.models.build import build_model, build_unfilled, parse_model, require_memory
from clearformer.models.sizes import at_most, check_sizes
from clearformer.text import TextConfig, train_tokenizer

SIZES = {"kind": "gpt", "n_layers": 1, "n_heads": 2, "d_model": 14, "d_ff": 13, "max_length": 61}
HUGE = {"n_layers": 10**8, "max_length": 3 * 10**8, "vocab": 10**12, "d_model": 4 * 10**9, "d_ff": 10**30}
LARGE = {"n_layers": 4000, "vocab": 2**30, "d_model": 2**20, "d_ff": 2**30}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(["the dog sees a tree"], TextConfig(kind="word", min_frequency=1))
    network = build_model(parse_model({**SIZES, "vocab": tokenizer.vocab_size}, "[model]"))
    write_run(
        tmp_path / "run", foreign_recipe(network.config, Origin(source="x")), weights_of(network), [tokenizer], None
    )
    return tmp_path / "run"


@pytest.mark.parametrize(("key", "value"), [*HUGE.items(), *LARGE.items()])
def test_a_recipe_that_asks_for_more_than_the_weights_is_refused(run: Path, key: str, value: int) -> None:
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    recipe["model"][key] = min(value, 2**63 - 1)
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe))
    before = peak_mb()
    with pytest.raises(ClearformerError, match=r"too large|does not fit the model|but the model expects"):
        clearformer.load(run)
    assert peak_mb() - before < 300


@pytest.mark.parametrize(("key", "value"), HUGE.items())
def test_sizes_beyond_all_models_are_refused(key: str, value: int) -> None:
    config = parse_model({**SIZES, "vocab": 17, key: value}, "[model]")
    with pytest.raises(ConfigError, match=f"{key} = {value} is too large: it must be at most"):
        check_sizes(config)


@pytest.mark.parametrize(("key", "value"), [("vocab", 2**30), ("d_model", 2**20), ("d_ff", 2**30)])
def test_a_network_larger_than_the_machine_is_refused_before_it_is_trained(key: str, value: int) -> None:
    with pytest.raises(MachineError, match=r"need more than the .* GiB of memory of this machine"):
        require_memory(parse_model({**SIZES, "vocab": 10**6, "n_layers": 100, key: value}, "[model]"))


def test_a_network_of_the_right_size_is_built() -> None:
    config = parse_model({**SIZES, "vocab": 17}, "[model]")
    require_memory(config)
    weights = weights_of(build_model(config))
    assert sum(p.numel() for p in build_unfilled(config, weights, "file").parameters()) > 0
    with pytest.raises(CheckpointError, match="it contains 3 numbers, and the configuration asks for far more"):
        build_unfilled(parse_model({**SIZES, "vocab": 10**6}, "[model]"), {"a": torch.ones(3)}, "file")


def test_the_limit_ends_with_its_context() -> None:
    with pytest.raises(ConfigError, match="no"), at_most(10, ConfigError("no")):
        torch.nn.Linear(3, 5)
    torch.nn.Linear(3, 5)


@pytest.mark.parametrize("key", ["n_positions", "vocab_size", "n_embd", "n_layer", "n_head"])
@pytest.mark.parametrize("value", [3 * 10**8, 2**40])
def test_a_config_of_another_library_is_compared_with_its_weights(tmp_path: Path, key: str, value: int) -> None:
    transformers: Any = pytest.importorskip("transformers")
    sizes = {"vocab_size": 17, "n_embd": 14, "n_layer": 1, "n_head": 2, "n_positions": 37}
    transformers.utils.logging.disable_progress_bar()
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path)
    tokenizer = train_tokenizer(["the dog sees a tree"], TextConfig(kind="word", min_frequency=1))
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    before = peak_mb()
    with pytest.raises(ClearformerError):
        clearformer.load(tmp_path)
    assert peak_mb() - before < 300


def test_a_table_of_positions_has_a_limit() -> None:
    """It is computed from max_length alone: no weight says how long it is."""
    table = {"kind": "transformer", "source_vocab": 17, "target_vocab": 17, "d_model": 16, "n_heads": 2}
    build_model(parse_model({**table, "max_length": 1000}, "[model]"))
    with pytest.raises(ConfigError, match="sinusoids of 16,777,216 positions and width 16"):
        build_model(parse_model({**table, "max_length": 2**24}, "[model]"))
