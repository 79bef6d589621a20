"""The site builds offline, without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.handbook
@pytest.mark.timeout(600)
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("myst_parser")
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'class="math' in (tmp_path / "handbook" / "attention.html").read_text(encoding="utf-8")
    assert "softmax(q k" in (tmp_path / "api" / "layers.html").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', text)
        assert not loaded, f"{page.name} loads {loaded[0]}"
