"""Type checkers and editors see the registry and the functions of the package, although both are imported lazily."""

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
import clearformer
reveal_type(clearformer.merge)
clearformer.trian
clearformer.plan(settings=5)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says about the snippet."""
    folder = tmp_path_factory.mktemp("snippet")
    (folder / "snippet.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "snippet.py"]
    environment = {**os.environ, "MYPYPATH": str(Path(__file__).parent.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


def test_a_metric_read_off_the_class_is_an_error(report: str) -> None:
    """As `compare` once did, which ended with an AttributeError for classifiers."""
    assert 'note: Revealed type is "type[clearformer.tasks.task.Task]"' in report
    assert 'note: Revealed type is "type[torch.nn.modules.module.Module]"' in report
    assert "snippet.py:7: error" in report
    assert "not indexable" in report


def test_the_functions_of_the_package_have_their_types(report: str) -> None:
    [revealed] = [line for line in report.splitlines() if line.startswith("snippet.py:9: note")]
    assert "def (adapter: " in revealed
    assert revealed.endswith(') -> dict[str, Any]"')
    assert 'snippet.py:10: error: Module has no attribute "trian"' in report
    assert 'snippet.py:11: error: Argument "settings"' in report
