"""Whether shapes recur, as in steps that are recorded as CUDA graphs: layers may then use kernels made for a shape."""

from threading import Lock, RLock

from clearformer.toolchain import can_compile


class FixedShapes:
    """Inside a `with` block, shapes recur, so that attention may use kernels that are prepared for a shape.

    These are the Triton kernels, and the plans of cuDNN. On an H200, cuDNN takes about three quarters of the time of
    other kernels for the training of GPT-2.
    """

    def __init__(self) -> None:
        self.lock, self.n_inside, self.has_triton = Lock(), 0, False

    @property
    def is_on(self) -> bool:
        return self.n_inside > 0

    def __enter__(self) -> None:
        with self.lock:
            self.n_inside += 1
            self.has_triton = can_compile()

    def __exit__(self, *raised: object) -> None:
        with self.lock:
            self.n_inside -= 1
            self.has_triton &= self.is_on


FIXED_SHAPES = FixedShapes()
RECORDING = RLock()  # torch records one CUDA graph at a time
