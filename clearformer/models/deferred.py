"""A network whose parameters get their memory later, some at a time, and then the values that they would have had.

    with Deferred() as later: model = build_model(config)      parameters with shapes, but without memory
    later.fill(model, block)                                   the parameters of a block, drawn

While it is built, a network that asks for memory (`torch.empty`) gets none: a tensor on the meta device. What happens
to such tensors is noted. What is drawn for one is drawn in memory that is freed at once, so that the generator, and all
later draws, are those of a plain build; `fill` draws it again, from the state of the generator at that moment. Of a
parameter that is drawn twice, as by its layer and by the rules of the network, only the last draw is repeated.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

META = torch.device("meta")
aten = torch.ops.aten
NO_VALUES = (aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default)
OVERWRITE = (aten.normal_.default, aten.uniform_.default, aten.zero_.default, aten.fill_.Scalar)


class Note(NamedTuple):
    """An operation on tensors without memory: the places that it reads and writes, and where the generator was."""

    function: Any
    args: Any
    kwargs: Any
    result: Any
    reads: frozenset[int]
    writes: frozenset[int]
    state: Tensor | None


class Disguise(TorchFunctionMode):
    """A tensor without memory says that it has some: torch's orthogonal_ and others would leave it out."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_question = getattr(function, "__self__", None) is Tensor.is_meta
        return False if is_question else function(*args, **(kwargs or {}))


class Deferred(TorchDispatchMode):
    """Notes what it takes to build a network. One that looks at its own values meanwhile raises a RuntimeError."""

    def __init__(self) -> None:
        super().__init__()
        self.notes, self.disguises = list[Note](), list[Disguise]()

    def __enter__(self) -> Self:
        self.disguises.append(Disguise())
        self.disguises[-1].__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.disguises.pop().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is aten.empty.memory_format and (kwargs.get("device") or torch.device("cpu")).type == "cpu":
            return function(*args, **{**kwargs, "device": META, "pin_memory": False})
        given = {place(tensor) for tensor in deferred((args, kwargs))}
        if not given and kwargs.get("device") != META:
            return function(*args, **kwargs)
        state = None
        if torch.Tag.nondeterministic_seeded in function.tags:
            state = torch.default_generator.get_state()
            function(*tree_map(room_like, args), **tree_map(room_like, kwargs))
        result = function(*args, **kwargs)
        changed = {place(tensor) for tensor in deferred(written(function, args, kwargs))}
        writes = changed | {place(tensor) for tensor in deferred(result)} - given
        if writes and function not in NO_VALUES:
            is_whole = function in OVERWRITE and args[0].nbytes == args[0].untyped_storage().nbytes()
            reads = given - changed if is_whole else given
            inputs, options = tree_map(copy_of_values, (args, kwargs))
            self.notes.append(Note(function, inputs, options, result, frozenset(reads), frozenset(writes), state))
        return result

    @torch.no_grad()
    def fill(self, model: nn.Module, part: nn.Module) -> None:
        """Give the parameters and buffers of a part of a model their values, one after the other. Tied ones stay so."""
        before = torch.default_generator.get_state()
        mine = {id(tensor) for _, _, tensor in slots(part) if has_no_memory(tensor)}
        filled: dict[int, Tensor] = {}
        for module, name, tensor in list(slots(model)):
            if id(tensor) in mine:
                if id(tensor) not in filled:
                    value = self.value(tensor)
                    is_parameter = isinstance(tensor, nn.Parameter)
                    filled[id(tensor)] = nn.Parameter(value, tensor.requires_grad) if is_parameter else value
                setattr(module, name, filled[id(tensor)])
        torch.default_generator.set_state(before)

    def value(self, tensor: Tensor) -> Tensor:
        """Repeat what a tensor depends on."""
        wanted, needed = frozenset([place(tensor)]), list[Note]()
        for note in reversed(self.notes):
            if note.writes & wanted:
                needed.append(note)
                wanted = wanted - note.writes | note.reads
        memory: dict[int, torch.UntypedStorage] = {}
        real = partial(in_memory, memory)
        for note in reversed(needed):
            if note.state is not None:
                torch.default_generator.set_state(note.state)
            result = note.function(*tree_map(real, note.args), **tree_map(real, note.kwargs))
            for shape, values in zip(deferred(note.result), tensors(result)):
                if place(shape) not in memory:
                    is_alike = shape.stride() == values.stride()
                    memory[place(shape)] = (values if is_alike else room_like(shape).copy_(values)).untyped_storage()
        filled: Tensor = real(tensor)
        return filled


def slots(module: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """All parameters and buffers, with the module and the name that hold them; tied ones occur several times."""
    for child in module.modules():
        for table in (child._parameters, child._buffers):
            yield from ((child, name, tensor) for name, tensor in table.items() if tensor is not None)


def tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))


def deferred(tree: Any) -> Iterator[Tensor]:
    return (tensor for tensor in tensors(tree) if has_no_memory(tensor))


def has_no_memory(tensor: Tensor) -> bool:
    return tensor.device == META


def place(tensor: Tensor) -> int:
    """A number for the memory that a tensor would have: that of its views, too."""
    number: int = tensor.untyped_storage()._cdata
    return number


def written(function: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operation changes."""
    named = zip(function._schema.arguments, args)
    changes = {one.name: one.alias_info is not None and one.alias_info.is_write for one in function._schema.arguments}
    return [
        *(value for one, value in named if changes[one.name]),
        *(value for name, value in kwargs.items() if changes[name]),
    ]


def room_like(leaf: Any) -> Any:
    """Memory for a deferred tensor, or for what is made on the meta device, to draw in it."""
    if isinstance(leaf, Tensor) and has_no_memory(leaf):
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="cpu")
    return torch.device("cpu") if leaf == META else leaf


def copy_of_values(leaf: Any) -> Any:
    """A tensor with values may change before they are needed."""
    return leaf.clone() if isinstance(leaf, Tensor) and not has_no_memory(leaf) else leaf


def in_memory(memory: dict[int, torch.UntypedStorage], leaf: Any) -> Any:
    if not (isinstance(leaf, Tensor) and has_no_memory(leaf)):
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf
    if place(leaf) not in memory:
        memory[place(leaf)] = torch.UntypedStorage(leaf.untyped_storage().nbytes())
    empty = torch.empty(0, dtype=leaf.dtype)
    return empty.set_(memory[place(leaf)], leaf.storage_offset(), leaf.size(), leaf.stride())
