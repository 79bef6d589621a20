import pytest
import torch

from clearformer.errors import MachineError
from clearformer.layers.positions import Sinusoidal, sinusoids
from clearformer.training.precision import autocast, built_in, pick_device


def test_float64_reaches_tables_unrounded():
    with built_in("float64"):
        table = Sinusoidal(6, 11).table
    assert table.dtype == torch.float64
    assert torch.equal(table, sinusoids(11, 6))
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_products_on_the_cpu(precision, dtype):
    x = torch.ones(3, 3)
    with autocast(torch.device("cpu"), precision):
        assert (x @ x).dtype == dtype


def test_unusable_device_is_said():
    with pytest.raises(MachineError, match=r"`abacus`.*\nhint: use --device cpu"):
        pick_device("abacus")


@pytest.mark.parametrize(("n_gpus", "places"), [(4, [0, 1, 2, 3]), (2, [0, 1, 0, 1]), (1, [0, 0, 0, 0])])
def test_ranks_take_the_gpus_in_turn(monkeypatch, n_gpus, places):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # the test whether a device can be used
    for rank, place in enumerate(places):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        assert pick_device("cuda") == torch.device("cuda", place)
