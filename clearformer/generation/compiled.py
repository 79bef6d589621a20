"""Decoding steps as machine code: one call per token instead of hundreds of operations, for one sentence on the CPU.

    table.step ──torch.export──▶ graph ──decompose──▶ graph ──AOTInductor──▶ step.pt2 in the cache ──▶ program.run()

For a small model, nearly all of the time of a plain step is spent between operations. Here, a step, from the embedding
to the chosen token and all bookkeeping of the policy, is one function in C++ that overwrites the tensors of a table
(static.py). Lengths are variables of the program, so one program serves all lengths. Weights are not part of it: it
reads the tensors of the model, so one program serves all models of the same structure.
"""

import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.errors import MachineError
from clearformer.generation import engine_cache
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.static import Size, StaticDecoder, Step, Table
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.backends import FusedCore
from clearformer.layers.int8 import Int8Linear

aten = torch.ops.aten
OPTIONS = {
    "aot_inductor.package_constants_in_so": False,  # weights are read from the model
    "cpp.dynamic_threads": True,  # as many as torch uses when a program runs
    # Otherwise, a norm before a product would be computed again for every row of the matrix.
    "realize_acc_reads_threshold": 1,
}
MODEL = "model"  # name of the model inside `Part`, and so the prefix of its weights in a program


class Part(nn.Module):
    """One method of a table, `read` or `step`, as a function of the table's tensors, which it overwrites."""

    def __init__(self, table: Table, name: str) -> None:
        super().__init__()
        self.model, self.name = table.model, name
        self.hidden = [table]  # in a list, so that nothing of the table becomes a part of the module

    def forward(self, *tensors: Tensor) -> tuple[()]:
        (table,) = self.hidden
        with rebound(table, self.name, tensors):
            getattr(table, self.name)()
        return ()


def places(table: Table, name: str) -> list[tuple[Any, str, str]]:
    """List the tensors that a method of a table uses: the object, the attribute, and the letter of its free dimension.

    s: source positions, n: slots, t: output tokens and one more; none: all dimensions are fixed.
    """
    state, policy = table.state, table.policy
    free = {"slots": "n", "paths": "n", "memory_keys": "s", "source": "s", "source_mask": "s"}
    free |= {"history": "t", "pool_history": "t", "logprobs": "t", "places": "t"}
    owners: list[Any] = [state, policy]
    if name == "read":
        owners.append(table)
    listed = [
        (owner, attribute, "" if owner is state and attribute == "places" else free.get(attribute, ""))
        for owner in owners
        for attribute, value in vars(owner).items()
        if isinstance(value, Tensor)
    ]
    return listed + [(kv, side, "n") for kv in state.caches for side in ("k", "v")]


def tensors_of(table: Table, name: str) -> list[Tensor]:
    """Return the tensors that a method of a table uses, in the order of the inputs of its program."""
    memory = [tensor.transpose(1, 2) for pair in table.state.memory or () for tensor in pair]
    return [getattr(owner, attribute) for owner, attribute, _ in places(table, name)] + memory


def dimensions(table: Table, name: str) -> tuple[dict[int, Any], ...]:
    """Return the free dimensions of these tensors, for torch.export. Slots and source come in multiples of 8."""
    letters = {"n": 8 * torch.export.Dim("n"), "s": 8 * torch.export.Dim("s"), "t": torch.export.Dim("t", min=3)}
    axis = {"slots": 1, "paths": 2, "k": 1, "v": 1, "history": 2, "pool_history": 2, "logprobs": 2, "places": 0}
    shapes = [
        {axis.get(attribute, 1): letters[letter]} if letter else {} for _, attribute, letter in places(table, name)
    ]
    return (*shapes, *({1: letters["s"]} for _ in range(2 * len(table.state.memory or ()))))


@contextmanager
def rebound(table: Table, name: str, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Let a table use other tensors inside a `with` block, while its method is traced."""
    state, policy = table.state, table.policy
    owners = [table, state, policy, *state.caches]
    before = [dict(vars(owner)) for owner in owners]
    where = places(table, name)
    try:
        for (owner, attribute, _), tensor in zip(where, tensors):
            setattr(owner, attribute, tensor)
        rest = [tensor.transpose(1, 2) for tensor in tensors[len(where) :]]
        if state.memory is not None:
            state.memory = list(zip(rest[::2], rest[1::2]))
        state.n_slots, policy.n_tokens = state.slots.size(1), policy.history.size(2) - 1
        for kv in state.caches:
            kv.places = state.places
        yield
    finally:
        for owner, attributes in zip(owners, before):
            vars(owner).update(attributes)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W' + b for a single vector as sums, which are compiled together with the operations around them."""
    if x.numel() != x.size(-1):
        return NotImplemented
    y = (weight * x.reshape(-1)).sum(-1)
    return (y if bias is None else y + bias).view(*x.shape[:-1], weight.size(0))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute attention for a few queries as sums."""
    if q.size(2) > 8 or is_causal:
        return NotImplemented
    groups = (k.size(1), q.size(1) // k.size(1))
    q = q.unflatten(1, groups)  # (B, G, H/G, T, K)
    scores = (q[..., None, :] * k[:, :, None, None]).sum(-1).flatten(1, 2) * scale  # (B, H, T, S)
    weights = (scores if mask is None else scores + mask).softmax(-1).unflatten(1, groups)
    return (weights[..., None] * v[:, :, None, None]).sum(-2).flatten(1, 2)  # (B, H, T, N)


DECOMPOSED = {aten.linear.default: linear, aten.scaled_dot_product_attention.default: attention}


class Program:
    """A compiled method of tables, with the weights of a model."""

    def __init__(self, path: Path, model: nn.Module) -> None:
        # The class behind torch._inductor.aoti_load_package, without the import of the compiler, which takes seconds.
        self.loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)
        self.weights: dict[str, Tensor] = {}  # the program has only their addresses
        self.use(model)

    def use(self, model: nn.Module) -> None:
        """Let the program read the weights of a model."""
        tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        self.weights = {name: tensors[name.removeprefix(f"{MODEL}.")].detach() for name in self.names()}
        self.loader.load_constants(self.weights, False, True, True)

    def names(self) -> list[str]:
        return list(self.loader.get_constant_fqns())

    def bound(self, table: Table, name: str) -> Step:
        """Return the program as a step of one table."""
        run, tensors = self.loader.run, tensors_of(table, name)

        def step() -> None:
            run(tensors)

        return step


class Programs:
    """The compiled methods of tables for one policy: `prepare` of a static decoder."""

    def __init__(self, folder: Path, model: nn.Module) -> None:
        self.parts = {path.stem: Program(path, model) for path in folder.glob("*.pt2")}
        self.model = model

    def __call__(self, table: Table, step: Step) -> Step:
        program = self.parts.get(step.__name__)
        if program is None:
            return step
        program.use(self.model)
        return program.bound(table, step.__name__)


class Compiler:
    """The static decoders of a model that run compiled steps: one per policy."""

    def __init__(self, model: Any, announce: Callable[[str], None]) -> None:
        self.model, self.announce = model, announce
        self.decoders: dict[Hashable, StaticDecoder | None] = {}

    def decoder(self, eos: int, config: DecodeConfig, width: int, is_built: bool) -> StaticDecoder | None:
        """Return the decoder for a policy, or None if it is not in the cache; `is_built`: compile it in this case."""
        key = (eos, width, tuple(search_settings(config, width).values()))
        if key not in self.decoders:
            facts = self.facts(eos, config, width)
            folder = engine_cache.find(engine_cache.key_of(facts), lambda text: warnings.warn(text, stacklevel=2))
            if folder is None and is_built:
                folder = self.build(facts, eos, config, width)
            self.decoders[key] = None if folder is None else self.opened(folder)
        return self.decoders[key]

    def opened(self, folder: Path) -> StaticDecoder | None:
        try:
            return StaticDecoder(self.model, Programs(folder, self.model), lag=0)
        except (RuntimeError, KeyError, AttributeError) as error:
            warnings.warn(f"the compiled engine {folder} cannot be loaded: {first_line(error)}", stacklevel=2)
            return None

    def facts(self, eos: int, config: DecodeConfig, width: int) -> dict[str, Any]:
        """Return everything that programs depend on, except the weights, which they read from the model."""
        return {
            "engine": "compiled",
            "model": self.model.config.model_dump(mode="json"),
            "structure": structure(self.model),
            "search": {"eos": eos, "width": width, **search_settings(config, width)},
            "torch": str(torch.__version__),
            "source": source_digest(),
            "machine": platform.machine(),
            "cpu": {name: str(value) for name, value in sorted(torch.cpu.get_capabilities().items())},
        }

    def build(self, facts: dict[str, Any], eos: int, config: DecodeConfig, width: int) -> Path:
        """Compile the methods of a table, and put them into the cache."""
        if cpp_compiler() is None:
            raise MachineError("compiled decoding needs a C++ compiler", "install g++, or choose --engine torch")
        start = time.monotonic()
        search = "greedy search" if width == 1 else f"beam search with {width} hypotheses"
        self.announce(f"compiling {search}: about a minute, once for all models of this structure")

        def write(folder: Path) -> None:
            for name in ("read", "step") if hasattr(self.model, "encoder") else ("step",):
                table = example(self.model, eos, config, width)
                compile_part(Part(table, name), table, folder / f"{name}.pt2")

        try:
            folder = engine_cache.store(facts, write)
        except MachineError:
            raise
        except Exception as error:
            message = f"the decoding steps cannot be compiled: {first_line(error)}"
            raise MachineError(message, "choose --engine torch") from error
        self.announce(f"compiled in {time.monotonic() - start:.0f} s; kept in {folder.parent}")
        return folder


def example(model: Any, eos: int, config: DecodeConfig, width: int) -> Table:
    """Return a small table of a policy, to trace its methods."""
    size = Size(1, width, 32, 24, is_encoded=hasattr(model, "encoder"))
    return StaticDecoder(model).table(size, eos, config, is_beam=width > 1)


def compile_part(part: Part, table: Table, path: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    tensors, shapes = tensors_of(table, part.name), dimensions(table, part.name)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(part, tuple(tensors), dynamic_shapes=(shapes,), strict=False)
        if part.name == "step":
            program = program.run_decompositions(DECOMPOSED)
        aoti_compile_and_package(program, package_path=str(path), inductor_configs=OPTIONS)


def can_compile(model: nn.Module) -> bool:
    """Whether decoding steps of a model can be compiled: float32 on the CPU, fused attention, observed by no hook.

    This is asked for every sentence, so the modules are visited only once.
    """
    if model.training or not getattr(model, "is_recordable", False) or torch.is_autocast_enabled("cpu"):
        return False
    has_attention = False
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or isinstance(module, Int8Linear):
            return False
        if isinstance(module, MultiHeadAttention):
            has_attention = True
            if type(module.core) is not FusedCore:
                return False
        for weight in module._parameters.values():
            if weight is not None and (weight.dtype != torch.float32 or not weight.is_cpu):
                return False
    return has_attention


def search_settings(config: DecodeConfig, width: int) -> dict[str, Any]:
    """Return the settings that are constants of a compiled step."""
    names = ["min_length", "repetition_penalty"] if width == 1 else ["min_length", "length_penalty", "penalty", "stop"]
    return {name: getattr(config, name) for name in names}


def structure(model: nn.Module) -> str:
    """Return a digest of the modules of a model, and of the names, shapes and strides of its weights."""
    lines = [f"{name} {type(module).__module__}.{type(module).__qualname__}" for name, module in model.named_modules()]
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    lines += [f"{name} {tuple(tensor.shape)} {tensor.stride()} {tensor.dtype}" for name, tensor in tensors]
    return sha256("\n".join(lines).encode()).hexdigest()


@cache
def source_digest() -> str:
    """Return a digest of the source code that programs are traced from."""
    package = Path(__file__).parent.parent
    files = sorted(path for room in ("layers", "models", "generation") for path in (package / room).glob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def cpp_compiler() -> str | None:
    """Return the path of the C++ compiler that torch would use, or None."""
    names = (os.environ.get("CXX", ""), "g++", "clang++", "cl")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
