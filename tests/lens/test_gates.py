"""Gates and states by token: they satisfy the equations of the cells, in all kinds of recurrent models."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer.errors import ConfigError, DataError
from clearformer.layers.cells import CELLS
from clearformer.verbs.lens import view

from .small_handles import TEXT, small


def layer(values: Any, name: str) -> dict[str, Tensor]:
    """The gates and states of a layer, each (T, D)."""
    [one] = [layer for layer in values["layers"] if layer["name"] == name]
    assert one["units"] == list(range(one["n_units"]))  # small layers show all units
    parts = {part: torch.tensor(rows).T for part, rows in one["values"].items()}
    for part, rows in parts.items():
        torch.testing.assert_close(rows.mean(1), torch.tensor(one["means"][part]))
        assert rows.shape == (len(one["tokens"]), one["n_units"])
    return parts


@pytest.mark.parametrize("cell", CELLS)
def test_states_follow_from_the_gates(cell: str) -> None:
    values = view("gates", small("rnn-lm", cell=cell), TEXT)
    json.dumps(values)
    assert [layer["name"] for layer in values["layers"]] == ["layers.l0", "layers.l1"]
    parts = layer(values, "layers.l1")
    state = torch.stack([parts.pop(name) for name in ("h", "m") if name in parts])  # (N, T, D)
    before = torch.cat([torch.zeros_like(state[:, :1]), state[:, :-1]], dim=1)
    gates = [parts[name] if state.size(0) == 2 else parts[name][None] for name in CELLS[cell].gate_names]
    torch.testing.assert_close(CELLS[cell].move(before, *gates), state)


def test_a_bahdanau_model_has_an_encoder_and_a_decoder() -> None:
    model = small("seq2seq")
    values = view("gates", model, TEXT, target="a queen saw")
    by_name = {layer["name"]: layer for layer in values["layers"]}
    assert list(by_name) == ["encoder.l0", "encoder.l0_reverse", "decoder.recur"]
    assert by_name["encoder.l0"]["tokens"] == [*TEXT.split(), "<eos>"]
    assert by_name["decoder.recur"]["tokens"] == ["<bos>", "a", "queen", "saw"]
    parts = layer(values, "decoder.recur")
    h = parts["h"][:-1]
    expected = (1 - parts["keep"][1:]) * parts["candidate"][1:] + parts["keep"][1:] * h
    torch.testing.assert_close(parts["h"][1:], expected)


def test_a_decoder_that_reads_a_single_token() -> None:
    values = view("gates", small("seq2seq"), TEXT, target="")
    assert values["layers"][-1]["tokens"] == ["<bos>"]
    assert layer(values, "decoder.recur")["h"].shape == (1, 7)


def test_the_reverse_direction_starts_at_the_end() -> None:
    values = view("gates", small("birnn-of-classifier"), TEXT)
    names = [layer["name"] for layer in values["layers"]]
    assert names == ["base.layers.l0", "base.layers.l0_reverse", "base.layers.l1", "base.layers.l1_reverse"]
    parts = layer(values, "base.layers.l1_reverse")
    following = torch.cat([parts["h"][1:], torch.zeros_like(parts["h"][:1])])
    torch.testing.assert_close(parts["h"], (1 - parts["keep"]) * parts["candidate"] + parts["keep"] * following)


def test_a_speech_model_is_shown_by_frame(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.random.default_rng(0).integers(-999, 999, 1601, "int16").tobytes())
    values = view("gates", small("speech-rnn"), str(tmp_path / "a.wav"))
    assert values["layers"][0]["tokens"][1] == "0.02 s"
    layer(values, "layers.l1")


def test_large_layers_show_the_units_that_change_most() -> None:
    values = view("gates", small("rnn-lm", d_model=37), TEXT, layer="layers.l0")
    [one] = values["layers"]
    assert len(one["units"]) == 32
    assert one["units"] == sorted(one["units"])
    whole = small("rnn-lm", d_model=37).model.layers
    assert one["n_units"] == whole.d_hidden
    assert len(one["values"]["m"]) == 32


@pytest.mark.parametrize("kind", ["svg", "png", "html"])
def test_gates_are_drawn(tmp_path: Path, kind: str) -> None:
    view("gates", small("rnn-lm"), TEXT, tmp_path / f"gates.{kind}")
    assert (tmp_path / f"gates.{kind}").stat().st_size > 10_000


def test_mistakes_are_explained() -> None:
    with pytest.raises(ConfigError, match="gpt has no recurrent layers"):
        view("gates", small("gpt"), TEXT)
    with pytest.raises(ConfigError, match=r"no recurrent layer `layers\.l7`"):
        view("gates", small("rnn-lm"), TEXT, layer="layers.l7")
    with pytest.raises(DataError, match="1,200 tokens"):
        view("gates", small("rnn-lm", max_length=2000), "a " * 1200)
