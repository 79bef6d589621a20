"""The verbs that only look: inspect, neighbours, doctor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clearformer

CliCall = Callable[..., Any]


def test_inspect_prints_what_python_gives(cli: CliCall, run: Path) -> None:
    result = json.loads(cli("inspect", run, "--length", 5, "--json").out)
    assert result == clearformer.inspect(run, 5)
    assert {"parameters", "multiplications", "layers"} <= result.keys()
    counts = {"parameters", "multiply_adds", "multiplications"}
    assert result["layers"][0].keys() == {"name", "output", "receptive_field", *counts}
    lines = cli("inspect", run, "--length", 5).out.splitlines()
    assert len(lines) == len(result["layers"]) + 2
    assert lines[-1].split() == ["total", f"{result['parameters']:,}", f"{result['multiplications']:,}"]


def test_the_notes_numbers_of_images(cli: CliCall) -> None:
    """Sizes and totals as the notes have them, or should: docs/errata.md."""
    found = {
        name: json.loads(cli("inspect", name, "--json").out)
        for name in (
            "alexnet", "alexnet-torchvision", "vgg16", "resnet110", "inception-naive", "inception-bottleneck",
        )
    }  # fmt: skip
    outputs = {layer["name"]: layer["output"][1:] for layer in found["alexnet"]["layers"]}
    assert {name.split(".")[1]: shape for name, shape in outputs.items() if name.startswith("layers.")} == {
        "conv1": [96, 55, 55],
        "pool1": [96, 27, 27],
        "conv2": [256, 27, 27],
        "pool2": [256, 13, 13],
        "conv3": [384, 13, 13],
        "conv4": [384, 13, 13],
        "conv5": [256, 13, 13],
        "pool5": [256, 6, 6],
    }
    dense = next(layer for layer in found["alexnet"]["layers"] if layer["name"].startswith("dense."))
    assert dense["parameters"] == 9216 * 4096 + 4096
    assert found["alexnet"]["parameters"] == 62_378_344
    assert found["alexnet-torchvision"]["parameters"] == 61_100_840
    assert found["vgg16"]["parameters"] == 138_357_544
    assert round(found["resnet110"]["parameters"] / 1e6, 1) == 1.7
    assert found["inception-naive"]["multiplications"] == 854_196_224
    assert found["inception-bottleneck"]["multiplications"] == 271_351_808
    assert found["inception-naive"]["layers"][-1]["output"][1] == 672


def test_inspect_says_how_far_a_layer_sees(cli: CliCall) -> None:
    lines = cli("inspect", "alexnet").out.splitlines()
    assert lines[0].split()[-1] == "sees"
    assert lines[1].split() == ["layers.conv1.conv", "1×96×55×55", "34,944", "105,415,200", "11"]
    assert cli("inspect", "alexnet", "--length", 99).out.splitlines()[1].split()[1] == "1×96×23×23"


def test_inspect_refuses_an_image_that_is_too_small(cli: CliCall) -> None:
    code, out, err = cli("inspect", "vgg16", "--length", 10)
    assert (code, out) == (1, "")
    assert "size = 10 is too small to be halved by 5 stages" in err
    assert "Traceback" not in err


def test_inspect_suggests_a_preset(cli: CliCall) -> None:
    code, out, err = cli("inspect", "transformer-bse")
    assert (code, out) == (1, "")
    assert err == (
        "error: there is no run folder, bundled model, preset or architecture `transformer-bse`\n"
        "hint: did you mean `transformer-base`?\n"
    )


def test_neighbours(cli: CliCall, run: Path) -> None:
    result = json.loads(cli("neighbours", "-m", run, "dog", "-n", 3, "--json").out)
    twin = clearformer.load(run).neighbours("dog", 3)
    assert [(row["word"], row["cosine"]) for row in result["neighbours"]] == [(w, round(c, 6)) for w, c in twin]
    lines = cli("neighbours", "-m", run, "dog", "-n", 3).out.splitlines()
    assert [line.split() for line in lines] == [[f"{cosine:.3f}", word] for word, cosine in twin]


def test_a_word_without_neighbours(cli: CliCall, run: Path) -> None:
    code, out, err = cli("neighbours", "-m", run, "漢字")
    assert (code, out) == (1, "")
    assert err.startswith("error: `漢字` is not in the source vocabulary of small\nhint: ")


def test_doctor(cli: CliCall) -> None:
    report = json.loads(cli("doctor", "--json").out)
    assert report["torch"] == clearformer.doctor()["torch"]
    assert all(line.startswith(("ok ", "note ")) for line in cli("doctor").out.splitlines())
