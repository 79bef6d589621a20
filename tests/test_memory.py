import re
from pathlib import Path

import pytest
import torch

from clearformer.memory import on_huge_pages, peak_mb


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_the_peak_is_the_systems() -> None:
    """Held and let go, it counts: VmHWM is the most memory that was ever resident, in KiB."""
    held = bytearray(30_000_000)
    before = peak_mb()
    del held
    told = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert told is not None
    assert peak_mb() == pytest.approx(int(told[1]) * 1024 / 1e6, rel=0.02)
    assert peak_mb() >= before > 30


def test_what_is_moved_to_huge_pages_stays_what_it_was() -> None:
    numbers = torch.arange(3_000_017)
    on_huge_pages(numbers.data_ptr(), numbers.nbytes)
    assert numbers.equal(torch.arange(3_000_017))
