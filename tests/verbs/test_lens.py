"""Views of a model at work, through Python and the command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import clearformer
from clearformer.cli import app
from clearformer.errors import ConfigError
from clearformer.models import MODELS
from clearformer.verbs.lens import VIEWS, list_activations, view
from clearformer.verbs.look import Look

from ..lens.small_handles import small

TEXT = "Where is the station?"


@pytest.fixture(scope="module")
def translator() -> Any:
    return clearformer.load()


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["lens", *arguments])


def test_a_look_has_activations_by_name(translator: Any) -> None:
    look = translator.lens(TEXT, "Où est la gare ?")
    pattern = look["decoder.blocks.1.cross.pattern"]
    alignment = translator.align(TEXT, "Où est la gare ?")
    torch.testing.assert_close(pattern[0], alignment.pattern[1], atol=1e-6, rtol=0)
    assert look["decoder.blocks.1.cross.pattern[2]"].equal(pattern[:, [2]])
    assert look["encoder.blocks.0.resid_pre"].shape == (1, len(alignment.source), 256)
    assert "decoder.blocks.0.mlp.hidden" in look.names("decoder*")
    assert "activations" in repr(look)
    with pytest.raises(ConfigError, match="matches several activations"):
        look["*.pattern"]


def test_a_look_draws_itself(translator: Any) -> None:
    assert translator.lens(TEXT)._repr_html_().startswith("<svg")


@pytest.mark.parametrize("kind", ["rnn-lm", "textcnn-of-classifier"])
def test_a_look_draws_itself_without_attention(kind: str) -> None:
    """The gates of recurrent layers, else histograms."""
    assert Look(small(kind), "the king saw a bike")._repr_html_().startswith("<svg")


def test_attention_has_encoder_decoder_and_cross(translator: Any) -> None:
    values = view("attention", translator, TEXT, target="Où est la gare ?")
    layers = {layer["name"]: layer for layer in values["layers"]}
    encoder, decoder, cross = (
        layers[name] for name in ("encoder.blocks.0.attn", "decoder.blocks.0.attn", "decoder.blocks.0.cross")
    )
    assert encoder["rows"] == encoder["columns"] == cross["columns"]
    assert decoder["rows"] == decoder["columns"] == ["<bos>", *cross["rows"][:-1]]
    for layer in values["layers"]:
        pattern = torch.tensor(layer["pattern"])
        assert pattern.shape[1:] == (len(layer["rows"]), len(layer["columns"]))
        torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:2]))
    assert torch.tensor(decoder["pattern"]).triu(1).eq(0).all()  # masked
    assert values["layer"] == max(name for name in layers if name.endswith("cross"))
    json.dumps(values)


@pytest.mark.parametrize("kind", ["html", "svg", "png", "json"])
def test_a_view_is_written_as_any_kind_of_file(translator: Any, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"map.{kind}"
    values = view("attention", translator, TEXT, out, layer="decoder.blocks.0.cross")
    content = out.read_bytes()
    if kind == "json":
        assert json.loads(content) == values
    elif kind == "html":
        assert content.count(b"<svg") == 1
        assert b"http" not in content.replace(b"http://www.w3.org", b"").replace(b"http://purl.org", b"").replace(
            b"https://matplotlib.org", b""
        ).replace(b"http://creativecommons.org", b"")
    else:
        assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")


@pytest.mark.parametrize("name", MODELS.names())
def test_all_activations_of_every_architecture_are_listed(name: str) -> None:
    rows = list_activations(name)["activations"]
    assert sum(shape is None for shape in rows.values()) < len(rows) / 10  # heads that a forward pass leaves out
    assert rows["out"] is not None


def test_the_list_by_the_command() -> None:
    result = run("list", "decoder.blocks.0.cross.p*")
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["decoder.blocks.0.cross.pattern", "1×4×32×32"]
    shapes = json.loads(run("list", "--json").output)["activations"]
    assert shapes["encoder.blocks.0.attn.q"] == [1, 4, 32, 64]


def test_attention_by_the_command(tmp_path: Path) -> None:
    out = tmp_path / "map.svg"
    result = run("attention", TEXT, "--layer", "encoder.blocks.0.attn", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert out.exists()
    assert json.loads(run("attention", TEXT, "--json").output)["layers"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["atention", TEXT], "there is no view called `atention`"),
        (["attention"], "the view `attention` needs TEXT"),
        (["attention", TEXT, "--layer", "decoder.blocks.9.cross"], "has no attention layer"),
        (["attention", TEXT, "--out", "map.bmp"], "unsupported file type for a view"),
        (["list", "decoder.blocks.*.crss"], "no activation is called"),
        (["heads"], "the view `heads` needs TEXT or --texts"),
        (["patching", TEXT], "the view `patching` needs --other"),
        (["induction"], "is a translator, not a language model"),
        (["flow", TEXT, "--position", "99"], "has no position 99"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "n_panels"),
    [
        (["rollout", TEXT], 1),
        (["flow", TEXT, "--position", "0"], 1),
        (["heads", TEXT], 3),
        (["patching", "The red car is here.", "--other", "The red house is here."], 2),
    ],
)
def test_grids_by_the_command(tmp_path: Path, arguments: list[str], n_panels: int) -> None:
    out = tmp_path / "grid.svg"
    result = run(*arguments, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8").startswith("<?xml")
    panels = json.loads(run(*arguments, "--json").output)["panels"]
    assert len(panels) == n_panels
    for panel in panels:
        assert torch.tensor(panel["values"]).shape == (len(panel["rows"]), len(panel["columns"]))


def test_heads_of_a_file_of_pairs(translator: Any, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("I am cold.\tJ'ai froid.\nWhere is he?\tOù est-il ?\n", encoding="utf-8")
    values = view("heads", translator, texts=pairs)
    singles = [view("heads", translator, line.split("\t")[0], target=line.split("\t")[1])
               for line in pairs.read_text(encoding="utf-8").splitlines()]  # fmt: skip
    assert values["examples"] == 2
    assert abs(values["logprob"] - sum(single["logprob"] for single in singles) / 2) < 1e-6


def test_patching_by_the_command_with_texts_of_different_lengths() -> None:
    arguments = ["--model", "en-small", "The man pulled a cart", "--other", "The man pooled a cart"]
    result = run("patching", *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["panels"]
    help_text = " ".join(run("--help").output.replace("│", " ").split())
    assert "activations are taken from, for `patching`; its length may differ" in help_text


def test_every_view_is_in_the_help() -> None:
    text = " ".join(run("--help").output.split())
    assert [name for name in VIEWS if f" {name} (" not in text] == []
