"""Watch a computation on fake tensors: every allocation, when it is freed, and every operation.

A fake tensor has a shape, a type and a device, but no memory. Operations on it cost no time to speak of, and autograd
saves and frees fake tensors exactly as it would real ones.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_iter
from torch.utils.flop_counter import flop_registry

ACTIVATIONS = "activations"  # the part of everything that has no other label
REST = "rest"  # the phase that a step begins with


class Event(NamedTuple):
    """An allocation of `n_bytes`, or, if they are negative, the end of one. `block` identifies the allocation."""

    block: int
    n_bytes: int


class Form(NamedTuple):
    """What the cost of an operation depends on in one of its tensors."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def n_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class Call(NamedTuple):
    """An operation with the forms of its tensors and its other arguments, as `tree_flatten` orders them."""

    function: Any
    arguments: tuple[Any, ...]
    layout: Any
    flops: int
    n_bytes: int

    @property
    def key(self) -> str:
        """A string that is the same for calls of equal cost. Numbers such as the learning rate are left out."""
        forms = (
            f"{list(a.shape)}{list(a.stride)}{str(a.dtype).removeprefix('torch.')}" if isinstance(a, Form) else short(a)
            for a in self.arguments
        )
        return f"{self.function}({', '.join(forms)})"


def short(value: Any) -> str:
    return "float" if isinstance(value, float) else str(value)


def ctc_loss(log_probs: Tensor, targets: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    T, B, _V = log_probs.shape
    return log_probs.new_empty(B), log_probs.new_empty(B, T, 2 * targets.size(-1) + 1)


def rnn_layer(x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """oneDNN's recurrent layer. Its workspace grows with the number of steps; torch's fake kernel leaves it empty."""
    *results, workspace = RNN_LAYER(x, *rest)
    T, *sizes = x.shape
    few, more = 1, 9
    with unset_fake_temporarily():
        others = [torch.zeros(value.shape) if isinstance(value, Tensor) else value for value in rest]
        first, last = (RNN_LAYER(torch.zeros(n, *sizes), *others)[-1].numel() for n in (few, more))
    return *results, workspace.new_empty(first + (T - few) * (last - first) // (more - few))


RNN_LAYER: Any = torch.ops.aten.mkldnn_rnn_layer.default
DEPENDENT = {torch.ops.aten._ctc_loss.Tensor: ctc_loss, RNN_LAYER: rnn_layer}
"""Operations whose fake kernels do not know all shapes. Those that depend on values are the largest possible."""


Record = Event | Call
"""What an allocator sees: an allocation, the end of one, or an operation, which takes memory while it runs."""


class Ledger(TorchDispatchMode):
    """Records allocations and operations inside `with FakeTensorMode(), Ledger() as ledger`.

    `watch` is called with each record when it happens; without it, they are kept in `records`.
    """

    def __init__(self, watch: Callable[[Record], None] | None = None) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.record = watch or self.records.append
        self.calls: Counter[str] = Counter()
        self.known: dict[str, Call] = {}
        self.n_views = 0
        self.blocks: dict[int, int] = {}  # storage -> block, while it lives
        self.sizes: list[int] = []  # by block
        self.labels: list[str] = []  # by block
        self.live: Counter[str] = Counter()  # bytes of each part
        self.phase = REST
        self.peaks: dict[str, Counter[str]] = {REST: Counter()}  # by phase, bytes of each part

    def restart(self) -> None:
        """Begin a new step: forget its operations and its peaks."""
        self.calls, self.n_views, self.peaks = Counter(), 0, {}
        self.enter(REST)

    def enter(self, phase: str) -> None:
        """Begin a phase of a step, or return to it."""
        self.phase = phase
        self.note_peak()

    def note_peak(self) -> None:
        if self.phase not in self.peaks or self.live.total() > self.peaks[self.phase].total():
            self.peaks[self.phase] = Counter(self.live)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.ops.aten._local_scalar_dense.default:  # a fake tensor has no value: assume 1
            dtype = args[0].dtype
            return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1
        result = DEPENDENT.get(function, function)(*args, **kwargs)
        if function.namespace != "prim":
            self.hold(result)
            self.count(function, args, kwargs, result)
        return result

    def count(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        if function.is_view or function is torch.ops.aten.detach.default:
            self.n_views += 1
            return
        values, layout = tree_flatten((args, kwargs))
        forms = tuple(form_of(value) if isinstance(value, Tensor) else value for value in values)
        flops = flop_registry.get(function._overloadpacket)
        amount = 0 if flops is None else int(flops(*args, **kwargs, out_val=result))
        n_bytes = sum(f.n_bytes for f in forms if isinstance(f, Form))
        n_bytes += sum(form_of(t).n_bytes for t in tree_iter(result) if isinstance(t, Tensor))
        call = Call(function, forms, layout, amount, n_bytes)
        self.calls[call.key] += 1
        self.record(self.known.setdefault(call.key, call))

    def hold(self, tensors: Any, label: str = ACTIVATIONS) -> None:
        """Record the memory of new tensors."""
        for tensor in tree_iter(tensors):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if (place := storage._cdata) not in self.blocks:
                    block, n_bytes = len(self.sizes), storage.nbytes()
                    self.blocks[place] = block
                    self.sizes.append(n_bytes)
                    self.labels.append(label)
                    self.record(Event(block, n_bytes))
                    self.live[label] += n_bytes
                    self.note_peak()
                    weakref.finalize(storage, self.release, place).atexit = False

    def release(self, place: int) -> None:
        block = self.blocks.pop(place)
        self.live[self.labels[block]] -= self.sizes[block]
        self.record(Event(block, -self.sizes[block]))

    def label(self, tensors: Iterable[Tensor], label: str) -> None:
        """Count these tensors to a part from now on."""
        for tensor in tensors:
            self.hold(tensor, label)
            block = self.blocks[tensor.untyped_storage()._cdata]
            self.live[self.labels[block]] -= self.sizes[block]
            self.labels[block] = label
            self.live[label] += self.sizes[block]


def form_of(tensor: Tensor) -> Form:
    return Form(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
