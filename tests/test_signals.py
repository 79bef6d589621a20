"""Signals that wait until code is over that they must not interrupt."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from clearformer.signals import SIGNALS, postponed


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_until_the_end_of_the_block(number: int) -> None:
    came: list[str] = []
    before = signal.signal(number, lambda *_: came.append("signal"))
    try:
        with postponed():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            came.append("block")
    finally:
        signal.signal(number, before)
    assert came == ["block", "signal"]


def test_the_block_may_end_with_an_error() -> None:
    def fail() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("of the block")

    with pytest.raises(KeyboardInterrupt) as caught, postponed():
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_nothing_changes_in_another_thread() -> None:
    done: list[bool] = []

    def block() -> None:
        with postponed():
            done.append(True)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert done == [True]


IMPORTING = """
import os, signal, sys, time
from clearformer.training.interrupt import stoppable

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.matrixlib":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Interrupting())
try:
    with stoppable():
        try:
            import numpy
        except BaseException:  # as torch does
            print("an import was interrupted")
        for _ in range(100):
            time.sleep(0.1)
        print("the signal was lost")
except KeyboardInterrupt as ending:
    print("stopped by", ending.number, numpy.flatnonzero([0, 1]))
"""


def test_a_signal_waits_while_a_module_is_imported() -> None:
    """torch ignores any error of its own import of numpy, and numpy lacks `matrix` from then on."""
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "stopped by 15 [1]\n"), done.stderr


PROGRAM = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "matplotlib.ft2font":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
try:
    import clearformer.plots
except KeyboardInterrupt:
    print("interrupted", "matplotlib.ft2font" in sys.modules, "matplotlib.axes" in sys.modules)
"""


def test_the_import_of_matplotlib_is_not_interrupted() -> None:
    """Its extensions end the process with SIGABRT then."""
    pytest.importorskip("matplotlib")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted True True\n"), done.stderr
