"""The notebook in examples/, executed by a real kernel: its cells show handles, progress and figures."""

import base64
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.slow,
    # of the libraries that talk to the kernel, not ours
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
AT_ONCE = "from clearformer import notebook; notebook.PATIENCE = 0.0"  # progress is shown on the fastest machine, too


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of each code cell, by its source."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(AT_ONCE))
        NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.source: cell.outputs for cell in notebook.cells[1:] if cell.cell_type == "code"}


def outputs(cells: dict[str, list[Any]], source: str) -> list[Any]:
    """The outputs of the one cell whose source contains a text."""
    [matching] = [values for text, values in cells.items() if source in text]
    return matching


def data(cells: dict[str, list[Any]], source: str, kind: str) -> list[str]:
    return [output.data[kind] for output in outputs(cells, source) if kind in getattr(output, "data", {})]


def test_the_stored_notebook_has_no_outputs() -> None:
    """They would contain paths and durations of one machine."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_no_cell_warns(cells: dict[str, list[Any]]) -> None:
    assert len(cells) > 10
    for source, values in cells.items():
        assert [output for output in values if getattr(output, "name", "") == "stderr"] == [], source
        assert values, source


def test_the_package_lists_its_functions(cells: dict[str, list[Any]]) -> None:
    [names] = data(cells, "import clearformer", "text/plain")
    assert "'load'" in names
    assert "import_module" not in names


def test_handles_are_shown_as_tables(cells: dict[str, list[Any]]) -> None:
    [table] = data(cells, "model = clearformer.load", "text/html")
    assert "<b>Translator en-fr-small: a translator</b>" in table
    assert "6,937,088" in table
    [shown] = cells["classifier.handle_"]
    assert "2 classes: English and French" in shown.data["text/html"]


def test_a_single_text_gives_a_string(cells: dict[str, list[Any]]) -> None:
    assert data(cells, 'model("Where is', "text/plain") == ["'Où est la gare ?'"]


def test_a_figure_is_shown(cells: dict[str, list[Any]]) -> None:
    [image] = data(cells, "clearformer.plot", "image/png")
    assert base64.b64decode(image).startswith(b"\x89PNG")
    assert data(cells, "clearformer.plot", "text/plain") == ["the figure attention.png"]


def test_long_work_shows_its_progress(cells: dict[str, list[Any]]) -> None:
    [translating] = [page for page in data(cells, "generate(600)", "text/html") if "<progress" in page]
    assert "inputs 600 of 600" in translating
    [training] = [page for page in data(cells, "classifier.fit", "text/html") if "<progress" in page]
    assert 'value="60" max="60"' in training
    assert "training 60 of 60" in training
    assert "best Accuracy" in training
    printed = [output.text for output in outputs(cells, "classifier.fit") if output.output_type == "stream"]
    assert "1,080 labelled texts" in "".join(printed)


def test_the_classifier_knows_its_languages(cells: dict[str, list[Any]]) -> None:
    [printed] = [output.text for output in outputs(cells, "questions =")]
    assert [line.split()[0] for line in printed.splitlines()] == ["English", "French", "English", "French"]
