"""docs/serve.md: every block works, and every option and path it names exists."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

from clearformer.serve.app import create_app
from clearformer.serve.server import STOP_SECONDS
from clearformer.serve.start import start
from clearformer.serve.store import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
HERE = "http://127.0.0.1:8000"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def open_url(store: Store, serving: Any) -> Iterator[str]:
    """The address of a server without a key."""
    with serving(create_app(store)) as url:
        yield url


def test_the_requests_by_curl(open_url: str) -> None:
    [block] = [block for block in blocks("bash") if "curl" in block]
    printed = subprocess.run(block.replace(HERE, open_url), shell=True, capture_output=True, check=True).stdout
    answer, shown = json.loads(printed), json.loads(blocks("json")[0])
    assert [row["translation"] for row in answer["translations"]] == [
        row["translation"] for row in shown["translations"]
    ]
    assert [row["logprob"] for row in answer["translations"]] == pytest.approx(
        [row["logprob"] for row in shown["translations"]], abs=1e-3
    )


def test_the_error_that_is_shown(open_url: str) -> None:
    import httpx2 as httpx

    answer = httpx.post(f"{open_url}/v1/translate", json={"text": "Hi.", "temprature": 1}).json()
    assert answer == json.loads(blocks("json")[1])


@pytest.mark.parametrize("i", [0, 1])
def test_the_python_blocks(open_url: str, i: int) -> None:
    code = blocks("python")[i].replace(HERE, open_url)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    if "OpenAI" in code:
        assert printed == "Où est la gare ?\n"
    else:
        lines = [line for line in printed.splitlines() if line]
        assert lines[0] == "event: token"
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["translation"] == "Où est la gare ?"


def test_the_key_is_one_that_is_accepted(tmp_path: Path) -> None:
    from clearformer.serve.start import read_keys

    [block] = [block for block in blocks("bash") if "openssl" in block]
    subprocess.run(block, shell=True, cwd=tmp_path, check=True)
    [key] = read_keys(tmp_path / "key.txt")
    assert len(key) == 48


def test_every_path_and_option_exists(open_url: str) -> None:
    import httpx2 as httpx

    described = httpx.get(f"{open_url}/api/openapi.json", timeout=60).json()
    for method, path in re.findall(r"`(GET|POST) (/[\w/]+)`", PAGE):
        assert path == "/api/openapi.json" or method.lower() in described["paths"][path], path
    help = subprocess.run(
        [sys.executable, "-m", "clearformer", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = set(re.findall(r"--[a-z][a-z-]+", re.sub(r"docker .*|pip .*", "", PAGE))) - {"--json", "--rm"}
    assert {"--api-key-file", "--drain-seconds", "--log-texts", "--queue"} <= options
    assert options <= set(re.findall(r"--[a-z][a-z-]+", help))
    metrics = httpx.get(f"{open_url}/metrics").text
    for name in re.findall(r"`(?:clearformer)?(_\w+(?:seconds|total|running|waiting))`", PAGE):
        assert f"# TYPE clearformer{name} " in metrics, name


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_dockerfile_copies_what_the_package_needs() -> None:
    """No image is built here. What it copies exists, and is enough for pyproject.toml to build the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = [name for line in re.findall(r"^COPY (.*)", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    assert {"pyproject.toml", "clearformer", project["readme"], "LICENSE"} <= {*copied}
    [torch] = [one for one in project["dependencies"] if one.startswith("torch")]
    assert f'"{torch}"' in DOCKERFILE
    [python] = re.findall(r"^ARG PYTHON=python:([\d.]+)-slim$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"^FROM (.*)", DOCKERFILE, re.MULTILINE) == ["${PYTHON}"]
    least = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, least.split(".")))


def test_the_command_of_the_dockerfile_is_understood(tmp_path: Path) -> None:
    """It is refused for its key alone, which is not there."""
    [text] = re.findall(r"^ENTRYPOINT (.*)", DOCKERFILE, re.MULTILINE)
    name, *words = json.loads(text)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert name in scripts
    words = [str(tmp_path / "key") if word == "/run/key" else word for word in words]
    result = subprocess.run([sys.executable, "-m", "clearformer", *words], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert f"--api-key-file {tmp_path / 'key'} cannot be read: No such file" in result.stderr


def test_the_health_check_of_the_dockerfile(open_url: str) -> None:
    [text] = re.findall(r"HEALTHCHECK .*\\\n\s+CMD (.*)", DOCKERFILE)
    _, *words = json.loads(text)
    for url, code in ((open_url, 0), ("http://127.0.0.1:9", 1)):
        words_here = [word.replace(HERE, url) for word in words]
        assert words_here != words
        assert subprocess.run([sys.executable, *words_here], capture_output=True, check=False).returncode == code


def test_the_files_of_deployment_name_options_that_exist() -> None:
    """They cannot be run here; what they start is checked, and that their syntax is right."""
    import yaml

    help = subprocess.run(
        [sys.executable, "-m", "clearformer", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    documents = list(yaml.safe_load_all((ROOT / "docs" / "kubernetes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    pod = documents[0]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    drain = float(container["command"][container["command"].index("--drain-seconds") + 1])
    before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert before + drain + STOP_SECONDS < pod["terminationGracePeriodSeconds"]
    docker = (ROOT / "Dockerfile").read_text()
    unit = (ROOT / "docs" / "clearformer.service").read_text()
    [stop] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    drain = signature(start).parameters["drain_seconds"].default
    assert drain + STOP_SECONDS + 5 < float(stop)
    starts = [" ".join(container["command"]), *re.findall(r"ENTRYPOINT.*", docker), *re.findall(r"ExecStart.*", unit)]
    assert len(starts) == 3
    for text in starts:
        assert set(re.findall(r"--[a-z-]+", text)) <= set(re.findall(r"--[a-z-]+", help))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r'"\.\[([\w,]+)\]"', docker)[0].split(",")) <= set(extras)
