"""What pip installs: built, put into an environment of its own, and used there."""

import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import clearformer

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_installs_and_translates(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"house {n}\tmaison {n}\n" for n in range(97)), encoding="utf-8")
    settings = ["train.steps=5", "train.tokens=101", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]
    clearformer.train(pairs=pairs, out=tmp_path / "run", settings=settings, device="cpu")

    def call(*command: str | Path) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # From a copy: what earlier builds left in the tree would be packed too.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "clearformer", source / "clearformer", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source)
    [wheel] = tmp_path.glob("clearformer-*.whl")

    with ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    static = ROOT / "clearformer" / "studio" / "static"
    pages = {path.relative_to(ROOT).as_posix() for path in static.rglob("*") if path.is_file()}
    assert len(pages) > 10
    assert pages <= packed

    venv.create(tmp_path / "venv")
    scripts = tmp_path / "venv" / "bin"
    call(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--no-deps", "--no-index", wheel)
    # The dependencies are those of this environment: they are large, and not what is tested.
    home = Path(call(scripts / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (home / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), *site.getsitepackages()}) + "\n")

    where = call(scripts / "python", "-c", "import clearformer.cli; print(clearformer.__file__)")
    assert Path(where.strip()).is_relative_to(home)
    expected = clearformer.load(tmp_path / "run").translate(["house 11"])
    assert call(scripts / "clearformer", "translate", "-m", tmp_path / "run", "house 11").splitlines() == expected
    assert "decoder.norm" in call(scripts / "clearformer", "inspect", "transformer-tiny")  # presets travel along
