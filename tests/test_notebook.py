"""What a notebook shows. tests/examples/test_notebook.py runs one; here is what needs no kernel."""

import subprocess
import sys

import pytest

from clearformer.notebook import NotebookBar, clock, html_table, is_notebook, tracked


def test_outside_of_a_notebook_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert not is_notebook()
    assert list(tracked(iter([[1, 2], [3]]), 3)) == [[1, 2], [3]]
    assert capfd.readouterr() == ("", "")


def test_looking_for_a_notebook_imports_nothing() -> None:
    code = "import sys; from clearformer.notebook import is_notebook; is_notebook(); print('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_ipython_in_a_terminal_is_no_notebook() -> None:
    code = "from clearformer.notebook import is_notebook; print('notebook', is_notebook())"
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code]
    assert "notebook False" in subprocess.run(command, capture_output=True, text=True).stdout


def test_durations() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 61, 3599, 7265)] == ["0:00", "1:00", "1:01", "59:59", "2:01:05"]


def test_text_is_escaped() -> None:
    page = html_table("<script>", {"<i>": "a & b"})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;i&gt;</th>" in page
    assert "a &amp; b</td>" in page
    bar = NotebookBar("<b>")
    bar.update(note="<i>")
    assert "&lt;b&gt; 0" in bar._repr_html_()
    assert "&lt;i&gt;" in bar._repr_html_()


def test_a_bar_counts_what_is_done_and_left() -> None:
    bar = NotebookBar("training")
    bar.add_task("training", total=None)
    assert bar._repr_html_() == "<progress></progress> training 0, 0:00"
    bar.add_task("training", total=2000, completed=500, note="loss 2")
    bar.since -= 30  # seconds ago
    bar.update(completed=1500)
    assert repr(bar) == "training 1,500 of 2,000, 0:30, 0:15 left, loss 2"  # 1,000 steps in 30 seconds
    assert bar._repr_html_().startswith('<progress value="1500" max="2000"></progress> training')
    bar.update(completed=2000, note="")
    assert repr(bar) == "training 2,000 of 2,000, 0:30"
