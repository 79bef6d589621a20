"""The registry is typed: mistakes about a task's class are found by mypy, not by users."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SNIPPET = """
from clearformer.models import MODELS
from clearformer.tasks import TASKS

reveal_type(TASKS.resolve("classification"))
reveal_type(MODELS.resolve("gpt"))
TASKS.resolve("classification").metrics[0]
"""


def test_a_metric_read_off_the_class_is_an_error(tmp_path: Path) -> None:
    """As `compare` once did, which ended with an AttributeError for classifiers."""
    (tmp_path / "snippet.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "snippet.py"]
    environment = {**os.environ, "MYPYPATH": str(Path(__file__).parent.parent)}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert 'note: Revealed type is "type[clearformer.tasks.task.Task]"' in said
    assert 'note: Revealed type is "type[torch.nn.modules.module.Module]"' in said
    assert "snippet.py:7: error" in said
    assert "not indexable" in said
