import io
import json

import pytest
import torch
from rich.console import Console

from clearformer.training.journal import Journal, Meter, read_metrics


def write(path, *steps):
    path.write_text("".join(json.dumps({"step": step, "kind": "train", "loss": step / 3}) + "\n" for step in steps))


def test_resume_cuts_back_and_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 10, 20, 30, 40)
    with path.open("a") as file:
        file.write('{"step": 50, "ki')  # the process was killed here
    journal = Journal(path, steps=90, start=20)
    journal.log(30, "train", {"loss": 0.125})
    journal.sync()
    journal.close()
    assert [line["step"] for line in read_metrics(path)] == [10, 20, 30]
    assert read_metrics(path)[-1]["loss"] == 0.125
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_kept_lines_keep_their_bytes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, 1, 2)
    before = path.read_bytes()
    Journal(path, steps=5, start=2).close()
    assert path.read_bytes() == before


def test_other_ranks_write_nothing(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl", steps=5, is_quiet=True)
    journal.log(1, "train", {"loss": 1.0})
    journal.sync()
    journal.close()
    assert not list(tmp_path.iterdir())


def test_a_line_being_written_is_not_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert read_metrics(path) == [{"step": 1}]


def test_meter_means_are_over_tokens_and_steps():
    meter = Meter(torch.device("cpu"))
    meter.add(torch.tensor(12.0), torch.tensor(1.0))
    meter.count(3)
    meter.add(torch.tensor(30.0), torch.tensor(2.0))
    meter.count(11)
    assert meter.stop()
    values = meter.read()
    assert (values["loss"], values["grad_norm"]) == (3.0, 1.5)
    assert meter.state() == {"sums": [0.0, 0.0], "tokens": 0, "steps": 0, "seconds": 0.0}


def test_meter_state_is_exact():
    one, two = Meter(torch.device("cpu")), Meter(torch.device("cpu"))
    one.add(torch.tensor(1 / 3), torch.tensor(1e-7))
    one.count(5)
    two.load_state(json.loads(json.dumps(one.state())))
    assert torch.equal(one.sums, two.sums)
    assert (two.tokens, two.steps) == (5, 1)


@pytest.mark.parametrize(("loss", "norm"), [("nan", 1.0), ("inf", 1.0), (1.0, "nan")])
def test_meter_notices_what_is_not_finite(loss, norm):
    meter = Meter(torch.device("cpu"))
    meter.add(torch.tensor(float(loss)), torch.tensor(float(norm)))
    meter.count(5)
    assert not meter.stop()


def test_a_budget_of_tokens_is_told_in_steps_once_it_can_be(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl", steps=None)
    [bar] = journal.bar.tasks
    assert bar.total is None
    journal.progress(7, 91.2)
    assert (bar.completed, bar.total) == (7, 91)
    journal.close()


def test_a_narrow_terminal_cuts_the_note_and_not_the_time_left(tmp_path):
    journal = Journal(tmp_path / "metrics.jsonl", steps=20000)
    journal.progress(10123, 20000)
    journal.note("loss 8.382  675 tokens/s  lr 1.31e-04  |g| 2.08  best bleu 0.00")
    journal.close()
    screen = io.StringIO()
    Console(file=screen, width=80).print(journal.bar.get_renderable())
    [line] = screen.getvalue().splitlines()
    assert all(part in line for part in ("10123/20000", "left", "loss 8.382", "…"))
