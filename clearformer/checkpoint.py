"""A run folder: all files of a run, readable while it trains.

    recipe.toml          the resolved recipe; reading it back rebuilds the run
    requested.toml       the recipe of the command that started the run: the same command continues it (train.resume)
    tokenizer.json       (or source.tokenizer.json and target.tokenizer.json)
    classes.json         the classes of a classifier, in the order of its logits
    calibration.json     the temperature of its probabilities, written by evaluate --calibrate, and how well it fits
    data/*.safetensors   the tokenised corpus, so that a resumed run trains on exactly the same pairs
    given/               a copy of data that was given as Python objects
    model.safetensors    the weights for inference: the best checkpoint so far
    last.safetensors     the weights, optimiser state and counters to resume from
    last.safetensors.index.json and last.save-*.safetensors    the same of a sharded run: a file of each process
    metrics.jsonl        one JSON object per line, by step
    histograms.jsonl     histograms of weights, gradients and activations at each validation
    samples.jsonl        the sample of the model's output that each validation prints
    loggers.json         the ids of the run in MLflow and W&B, and the last step sent to each
    report.json          final metrics, seconds, tokens/s, versions; figures are saved next to it
    checksums.json       the SHA-256 of every file, which `clearformer verify` compares

Writes are atomic: a file is written under a temporary name, flushed to disk, then renamed, and the folder is flushed.
Nothing is ever pickled or unpickled.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearformer.checksums import forget
from clearformer.disk import atomically, flush, write_text
from clearformer.errors import CheckpointError
from clearformer.small_files import parse_json, read_json
from clearformer.wording import count

Value = TypeVar("Value")

CLASSES = "classes.json"
CALIBRATION = "calibration.json"


class RunFolder:
    """The paths of the files in a run folder, the lock of the folder, and its clean-up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.toml"
        self.requested = path / "requested.toml"
        self.model = path / "model.safetensors"
        self.last = path / "last.safetensors"
        self.index = path / "last.safetensors.index.json"
        self.metrics = path / "metrics.jsonl"
        self.histograms = path / "histograms.jsonl"
        self.samples = path / "samples.jsonl"
        self.report = path / "report.json"
        self.data = path / "data"
        self.given = path / "given"

    @property
    def exists(self) -> bool:
        return self.recipe.exists()

    @property
    def checkpoint(self) -> Path:
        """The file to resume from: the index of a sharded checkpoint, or last.safetensors."""
        return self.index if self.index.exists() else self.last

    def require(self) -> None:
        if not self.path.exists():
            raise CheckpointError(f"there is no run folder {self.path}", "give the --out folder of a run")
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder: it has no recipe.toml", "give the --out folder of a run"
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other training processes from this folder. The system releases the lock of a killed process."""
        self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise CheckpointError(
                f"another process is training in {self.path}", "wait until it has finished, or choose another --out"
            ) from None
        finally:
            os.close(folder)

    def sweep(self) -> None:
        """Remove what killed processes have left.

        These are temporary files and folders, .<name>.<process id> and .<name>.<suffix>, and parts of no checkpoint.
        """
        for folder in (self.path, self.data):
            for ending in ("toml", "json", "jsonl", "safetensors", "png"):
                for draft in folder.glob(f".*.{ending}.*"):
                    if draft.is_dir():
                        shutil.rmtree(draft)
                    elif draft.suffix[1:].isdigit():
                        draft.unlink()
        self.discard_unlisted()

    def discard_unlisted(self) -> None:
        """Remove the parts that belong to no checkpoint."""
        self.discard_parts(part_names(self.index) if self.index.exists() else [])

    def discard_parts(self, kept: Sequence[str] = ()) -> None:
        """Remove the parts of sharded checkpoints that are not `kept`, and the index if none is.

        The index is removed first: an index always has its parts.
        """
        if not kept:
            remove(self.path, [self.index.name])
        remove(self.path, [path.name for path in self.path.glob("last.save-*.safetensors") if path.name not in kept])


def part_names(index: Path) -> list[str]:
    """Return the names of the files that the index of a sharded checkpoint lists, all in its own folder."""
    try:
        table = read_json(index)
        names = table.get("parts") if isinstance(table, dict) else None
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("it does not list the parts of a checkpoint")
        if outside := [name for name in names if Path(name).name != name or "\0" in name]:
            raise ValueError(f"it lists `{outside[0][:99]}`, a file outside its folder")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{index} cannot be read: {reason}", "copy the whole run folder again") from None
    return names


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove files of a run folder, after their checksums; on a full disk before, which makes room for checksums."""
    if present := [name for name in names if (folder / name).exists()]:
        with suppress(OSError):
            forget(folder, present)
        for name in present:
            (folder / name).unlink(missing_ok=True)
        flush(folder)
        forget(folder, present)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


REPORTED: dict[str, type | tuple[type, ...]] = {"steps": int, "best_step": int, "seed": int, "seconds": (int, float)}
TABLES = ("valid", "test", "versions")  # the dictionaries of a report, each of which may be missing


def read_report(run: RunFolder) -> dict[str, Any]:
    """Read report.json, and check the entries that every report has."""
    try:
        report = read_json(run.report)
        if not isinstance(report, dict) or not all(isinstance(report.get(k), kind) for k, kind in REPORTED.items()):
            raise ValueError("it is not the report of a run")
        if not all(isinstance(report.get(name) or {}, dict) for name in TABLES):
            raise ValueError("its metrics are not a table")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{run.report} cannot be read: {reason}", "copy it again, or remove it") from None
    return report


def read_class_file(path: Path) -> list[Any]:
    """Read classes.json: the classes of a classifier, strings or numbers, in the order of its logits."""
    try:
        classes = read_json(path)
        if not isinstance(classes, list) or not all(isinstance(label, str | int | float) for label in classes):
            raise ValueError("it is not a list of classes")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be read: {reason}", "copy the whole run folder again") from None
    return classes


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Save tensors by name in one safetensors file. `facts`, any JSON object, is stored in its header."""
    ready = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomically(path) as draft:
        save_file(ready, draft, metadata={"clearformer": json.dumps(facts or {})})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load the tensors and facts that `save_tensors` wrote. Other safetensors files have tensors but no facts."""
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return tensors, facts_in(file)


def map_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Like `load_tensors`, but the tensors stay in the file: what is used of them is read when it is used.

    The system takes the memory of their pages back whenever it needs it. The file may be replaced, but not changed.
    """
    with open_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, facts_in(file)  # noqa: SIM118


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts that `save_tensors` stored in a file. Only the header is read."""
    with open_tensors(path) as file:
        return facts_in(file)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shape of every tensor in a file, by name. Only the header is read."""
    with open_tensors(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file for reading. It is memory-mapped: a tensor is loaded when it is accessed.

    The library rejects a header whose sizes do not add up to the size of the file.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist", "train first, or give another run folder")
    if not path.is_file():
        raise CheckpointError(
            f"{path} is not a regular file, so it is not a safetensors file", "copy the whole folder again"
        )
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, ValueError, OSError, RecursionError, OverflowError, RuntimeError) as error:
        hint = "copy the file again, or use another run"
        if first_bytes(path) in (b"PK", b"\x80\x02", b"\x80\x04"):
            hint = "this looks like a pickled file; only safetensors files are supported"
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error})", hint) from None


def facts_in(file: Any) -> dict[str, Any]:
    facts = parse_json((file.metadata() or {}).get("clearformer", "{}"))
    if not isinstance(facts, dict):
        raise ValueError("the metadata in its header is not a JSON object")
    return facts


def first_bytes(path: Path) -> bytes:
    """Return the first two bytes of a file, or b"" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(2)
    except OSError:
        return b""


class Stored(Protocol):
    """A tensor in a file; any of its rows can be read. A tensor without dimensions has no rows, and is read whole."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, start: int = 0, stop: int | None = None) -> Tensor: ...


def load_weights(
    model: nn.Module, weights: Mapping[str, Tensor | Stored], where: str, part: Collection[str] | None = None
) -> None:
    """Load weights into a model, which may be sharded. With `part`, load only the tensors listed there.

    Missing, unexpected and wrongly shaped tensors are errors. Tied weights are stored once. One tensor is copied after
    the other, so that no second copy of the model is made.
    """
    state = state_for(model, weights, where, part)
    with torch.no_grad():
        for name, tensor in weights.items():
            state[name].copy_(like(tensor, state[name]))


def map_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Like `load_weights`, but the tensors become the parameters, which need no memory of their own before.

    They are copied only if the parameters have another dtype.
    """
    state_for(model, weights, where)
    owned = {name: p for name, p in model.named_parameters() if name in weights}  # by the name that is saved
    mapped = {id(p): nn.Parameter(weights[name].to(p.dtype), p.requires_grad) for name, p in owned.items()}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if id(parameter) in mapped:
                setattr(module, name, mapped[id(parameter)])
    rest = {name: tensor for name, tensor in weights.items() if name not in owned}
    load_weights(model, rest, where, rest.keys())


def state_for(
    model: nn.Module, weights: Mapping[str, Tensor | Stored], where: str, part: Collection[str] | None = None
) -> dict[str, Tensor]:
    """Return the tensors of a model that are loaded, after a check that the weights are for them."""
    state = {name: tensor for name, tensor in model.state_dict().items() if part is None or name in part}
    expected = set(unique_names(model)) & state.keys()
    missing, extra = sorted(expected - set(weights)), sorted(set(weights) - set(state))
    if missing or extra:
        problem = f"`{missing[0]}` is missing" if missing else f"the model has no tensor `{extra[0]}`"
        more = len(missing) + len(extra) - 1
        raise CheckpointError(
            f"{where} does not fit the model: {problem}" + (f" (and {count(more, 'similar problem')})" if more else ""),
            "the file belongs to another model or to another version of the recipe",
        )
    for name, tensor in weights.items():
        if state[name].shape != tensor.shape:
            raise CheckpointError(
                f"{where} does not fit the model: `{name}` has the shape {tuple(tensor.shape)}, "
                f"not {tuple(state[name].shape)}",
                "recipe.toml or the tokenizer comes from another run; copy the whole run folder again",
            )
    return state


def unique_names(model: nn.Module) -> list[str]:
    """Return the state-dict names, with a single name for each tied tensor: the name under which it is saved."""
    seen: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        seen.setdefault(id(tensor), name)
    return list(seen.values())


def weights_of(model: nn.Module, part: Collection[str] | None = None) -> dict[str, Tensor]:
    """Return the tensors of a model that are saved, or only the ones listed in `part`."""
    state = model.state_dict()
    return {name: state[name] for name in unique_names(model) if part is None or name in part}


def under(prefix: str, tensors: Mapping[str, Value]) -> dict[str, Value]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def fingerprint(model: nn.Module) -> str:
    """Return 16 hexadecimal digits that depend on every name, shape and bit of the weights."""
    digest = sha256()
    for name, tensor in sorted(weights_of(model).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        data: Any = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        digest.update(data)
    return digest.hexdigest()[:16]


def whole(tensor: Tensor) -> Tensor:
    """Return the full tensor, gathered from all ranks if it is sharded. All ranks must call this together.

    Where ranks share a GPU, shards are copied to the host first: gloo's gathering for DTensors reads only its memory.
    """
    if not hasattr(tensor, "full_tensor"):
        return tensor
    is_sharded = any(place.is_shard() for place in getattr(tensor, "placements", ()))
    if is_sharded and tensor.is_cuda and "nccl" not in torch.distributed.get_backend_config():
        return whole(tensor.cpu()).to(tensor.device)
    full: Tensor = tensor.full_tensor()
    return full


def like(tensor: Tensor | Stored, other: Tensor) -> Tensor:
    """Shard a full tensor over the ranks like `other`. Each rank takes, or reads, no more than its own rows."""
    if not hasattr(other, "full_tensor"):
        return loaded(tensor)
    from torch.distributed.tensor import DTensor

    assert isinstance(other, DTensor)
    start, stop = rows_of(other)
    rows = tensor[start:stop] if isinstance(tensor, Tensor) else tensor.read(start, stop)
    rows = rows.to(other.device, copy=True)
    mesh, placements = other.device_mesh, other.placements
    return DTensor.from_local(rows, mesh, placements, run_check=False, shape=other.shape, stride=other.stride())


def loaded(tensor: Tensor | Stored) -> Tensor:
    return tensor if isinstance(tensor, Tensor) else tensor.read()


def rows_of(tensor: Tensor) -> tuple[int, int]:
    """Return the rows of a sharded tensor that this rank holds, from start to stop."""
    from torch.distributed.tensor import DTensor, Shard

    assert isinstance(tensor, DTensor)
    assert tensor.placements == (Shard(0),)
    n, mesh = tensor.size(0), tensor.device_mesh
    most = -(-n // mesh.size())  # every rank has as many rows, except the last ones
    start = min(mesh.get_local_rank() * most, n)
    return start, min(start + most, n)


def versions() -> dict[str, str]:
    """Return the versions and the hardware, which are recorded with every result."""
    import platform
    from importlib.metadata import version

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    packages = {name: version(name) for name in ("torch", "tokenizers", "safetensors", "sacrebleu")}
    from clearformer.version import __version__

    return {"clearformer": __version__, "python": platform.python_version(), **packages, "device": gpu or cpu_name()}


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        import platform

        return platform.processor() or platform.machine()
