"""The memory of kernels, measured by what they touch."""

import sys

import pytest
import torch

from clearformer.memory import keep_freed_memory
from clearformer.planning.scratch import scratch_of

MB = 2**20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_what_an_operation_takes_beside_its_results() -> None:
    keep_freed_memory()
    x = torch.ones(8 * MB)  # 32 MB
    known = {x.untyped_storage().data_ptr()}

    def compute() -> torch.Tensor:
        return (x + 1.0)[:MB].clone()  # 32 MB that are given back, and 4 MB of results

    compute()
    assert 31 * MB < scratch_of(compute, known) < 36 * MB
    assert scratch_of(lambda: x + 1.0, known) < 2 * MB
    assert scratch_of(lambda: x.add_(1.0), known) < 2 * MB
