import re
from pathlib import Path

import pytest

from clearformer.memory import peak_mb


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
