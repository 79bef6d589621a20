"""The number of threads for small work."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from clearformer.threads import LITTLE_WORK, use_few_threads


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    n = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(n)


def test_little_work_takes_one_thread(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(100, 10, bias=False)
    use_few_threads(model, int(LITTLE_WORK) // 1000 + 1)
    assert torch.get_num_threads() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    use_few_threads(model, 1)
    assert torch.get_num_threads() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    use_few_threads(model, int(LITTLE_WORK) // 1000)
    assert torch.get_num_threads() == 1
