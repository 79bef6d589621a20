"""Positions of a model: sinusoids shift by an exact rotation, a planted rotation is recovered, others are not."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.errors import ConfigError
from clearformer.layers.positions import shift_matrix, sinusoids
from clearformer.lens.positions import best_rotation, of_table, rotation
from clearformer.verbs.lens import view

from .small_handles import small


def encodings(kind: str, **sizes: Any) -> dict[str, Any]:
    values = view("positions", small(kind, **sizes))
    json.dumps(values)
    return {one["name"]: one for one in values["encodings"]}


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sinusoids_shift_by_an_exact_rotation(layout: str) -> None:
    both = encodings("transformer", positions={"kind": "sinusoidal", "layout": layout})
    assert list(both) == ["encoder.positions", "decoder.positions"]
    one = both["encoder.positions"]
    assert one["kind"] == "sinusoidal"
    assert list(one["shifts"]) == ["1", "2", "5", "10", "20"]
    for k, shift in one["shifts"].items():
        assert shift["is_exact"]
        assert shift["error"] < 1e-10  # the table is in float32
        omega = [10000 ** (-2 * i / 14) * int(k) for i in range(7)]
        wrapped = sorted((abs(math.remainder(w, 2 * math.pi)) for w in omega), reverse=True)
        assert shift["angles"] == pytest.approx(wrapped, abs=1e-9)
    norms = torch.tensor(one["norms"])
    torch.testing.assert_close(norms, torch.full((61,), math.sqrt(7)))
    assert one["similarity"][3][8] == pytest.approx(one["similarity"][20][25], abs=1e-6)


def test_the_two_layouts_differ_by_an_order() -> None:
    assert rotation(5, 14, "interleaved").equal(shift_matrix(5, 14))
    table = sinusoids(31, 14, "halves")
    torch.testing.assert_close(table[:-5] @ rotation(5, 14, "halves").T, table[5:])


def test_learned_positions_are_fitted() -> None:
    one = encodings("gpt", positions={"kind": "learned"})["decoder.positions"]
    table = small("gpt", positions={"kind": "learned"}).model.decoder.positions.table.weight
    assert one["n_positions"] == 61
    torch.testing.assert_close(torch.tensor(one["norms"]), table.detach().norm(dim=1))
    assert one["shifts"]["1"]["error"] > 0.5  # random vectors: no rotation
    assert not one["shifts"]["1"]["is_exact"]


def test_the_offset_of_learned_positions_is_left_out() -> None:
    assert encodings("gpt", positions={"kind": "learned", "offset": 2})["decoder.positions"]["n_positions"] == 61


def test_a_planted_rotation_is_recovered() -> None:
    torch.manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64))
    rows = [torch.randn(7, dtype=torch.float64)]
    for _ in range(60):
        rows.append(turn @ rows[-1])
    table = torch.stack(rows)
    torch.testing.assert_close(best_rotation(table, 1), turn)
    torch.testing.assert_close(best_rotation(table, 5), torch.linalg.matrix_power(turn, 5))
    shifts = of_table(table, None)["shifts"]
    assert max(shift["error"] for shift in shifts.values()) < 1e-20


def test_rotary_similarity_depends_on_the_distance() -> None:
    one = encodings("gpt", positions={"kind": "rotary"})["decoder.positions"]  # heads of width 2: one frequency, 1
    assert one["by_distance"][:4] == pytest.approx([math.cos(k) for k in range(4)])
    assert one["wavelengths"] == pytest.approx([2 * math.pi])


def test_biases_by_distance() -> None:
    alibi = encodings("gpt", positions={"kind": "alibi"})["decoder.positions"]
    slope = small("gpt", positions={"kind": "alibi"}).model.decoder.positions.slopes[3]
    middle = alibi["distance"].index(0)
    assert alibi["bias"][3][middle - 5] == pytest.approx(-5 * float(slope))
    t5 = encodings("t5")
    model = small("t5").model
    causal = t5["decoder.positions"]
    weight = model.decoder.positions.weight.weight
    assert causal["bias"][2][middle - 3] == pytest.approx(float(weight[3, 2].detach()), abs=1e-7)
    assert causal["bias"][2][middle + 3] == pytest.approx(
        float(weight[0, 2].detach()), abs=1e-7
    )  # the future: distance 0


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary", "alibi", "t5"])
def test_every_kind_is_drawn(tmp_path: Path, kind: str) -> None:
    view("positions", small("gpt", positions={"kind": kind}), out=tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_the_patches_of_an_image_have_positions(handle: Any) -> None:
    [one] = view("positions", handle("vit"))["encodings"]
    assert (one["name"], one["n_positions"], one["shifts"]) == ("patches", 3 * 3 + 1, {})


def test_a_model_without_positions() -> None:
    with pytest.raises(ConfigError, match="rnn-lm has no position encoding"):
        view("positions", small("rnn-lm"))


def test_the_bundled_translator() -> None:
    [first, *_] = view("positions")["encodings"]
    assert all(shift["error"] < 1e-9 for shift in first["shifts"].values())
