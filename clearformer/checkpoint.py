"""A run folder: everything a training leaves behind, readable while it is written.

    recipe.toml          the resolved recipe; reloading it rebuilds the run
    tokenizer.json       (or source.tokenizer.json and target.tokenizer.json)
    classes.json         of a classifier: its labels, in the order of its scores
    data/*.safetensors   the tokenised corpus, so that a resumed run sees exactly the same pairs
    model.safetensors    the weights to use: the best so far on validation
    last.safetensors     the weights, optimiser state and counters to resume from
    metrics.jsonl        one JSON object a line, by step
    report.json          final scores, seconds, tokens/s, versions; pictures beside it

Every file appears whole or not at all: it is written under another name, flushed to disk, then renamed. Nothing is
ever pickled or unpickled.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearformer.errors import CheckpointError, MachineError

CLASSES = "classes.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunFolder:
    """The names of the files above, and how each is read and written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.toml"
        self.model = path / "model.safetensors"
        self.last = path / "last.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.report = path / "report.json"
        self.data = path / "data"

    @property
    def exists(self) -> bool:
        return self.recipe.exists()

    def require(self) -> None:
        if not self.path.exists():
            raise CheckpointError(f"there is no run folder {self.path}", "name the --out folder of a training")
        if not self.exists:
            raise CheckpointError(
                f"{self.path} is not a run folder: it has no recipe.toml", "name the --out folder of a training"
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Inside, no other training may enter this folder; a process that is killed leaves it open."""
        self.path.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise CheckpointError(
                f"another process is training into {self.path}", "wait for it, or choose another --out"
            ) from None
        finally:
            os.close(folder)

    def sweep(self) -> None:
        """Remove what a process left half-written when it was killed: drafts, .<name>.<number or folder>."""
        for folder in (self.path, self.data):
            for ending in ("toml", "json", "jsonl", "safetensors"):
                for draft in folder.glob(f".*.{ending}.*"):
                    if draft.is_dir():
                        shutil.rmtree(draft)
                    elif draft.suffix[1:].isdigit():
                        draft.unlink()


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Yields a name to write under; on leaving, the file is flushed to disk and takes its place in one move.

    Its mode is the one that the umask gives, even if the writer made a file of its own: safetensors writes 0600.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = create(draft)
        yield draft
        if S_IMODE(draft.stat().st_mode) != mode:
            draft.chmod(mode)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except (OSError, SafetensorError) as error:
        # The safetensors library has no errno, only the system's words for it.
        full = getattr(error, "errno", None) in FULL or any(os.strerror(code) in str(error) for code in FULL)
        reason = "the disk is full" if full else str(error)
        hint = "free some space; what was saved before is untouched" if full else "check the path and its permissions"
        raise MachineError(f"{path} cannot be written: {reason}", hint) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def create(path: Path) -> int:
    """Make an empty file, and return the mode that the system gives it.

    The umask itself can only be read by changing it, for all threads at once.
    """
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return S_IMODE(os.fstat(file).st_mode)
    finally:
        os.close(file)


def write_text(path: Path, text: str) -> None:
    with atomically(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Tensors by name as one safetensors file; `facts`, anything JSON can say, travel in its header."""
    ready = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomically(path) as draft:
        save_file(ready, draft, metadata={"clearformer": json.dumps(facts or {})})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; any other safetensors file gives its tensors and no facts."""
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return tensors, facts_in(file)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts of `load_tensors`, from the header alone."""
    with open_tensors(path) as file:
        return facts_in(file)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by name, from the header alone."""
    with open_tensors(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """A safetensors file open for reading, memory-mapped: no tensor is in memory before it is asked for.

    The library refuses a header whose sizes do not add up to the size of the file.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist", "train first, or name another run folder")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        hint = "copy it again, or resume from another run"
        if first_bytes(path) in (b"PK", b"\x80\x02", b"\x80\x04"):
            hint = "this looks like a pickled file, which is never opened; only safetensors are"
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error})", hint) from None


def facts_in(file: Any) -> dict[str, Any]:
    facts = json.loads((file.metadata() or {}).get("clearformer", "{}"))
    if not isinstance(facts, dict):
        raise ValueError("the facts in its header are not a JSON object")
    return facts


def first_bytes(path: Path) -> bytes:
    """Two of them; none if the file may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read(2)
    except OSError:
        return b""


def load_weights(
    model: nn.Module, weights: Mapping[str, Tensor], where: str, part: Collection[str] | None = None
) -> None:
    """Fill the model, sliced or not, or a part of it by name; what does not fit is said by name.

    Tied weights are stored once.
    """
    own = {name: tensor for name, tensor in model.state_dict().items() if part is None or name in part}
    expected = set(unique_names(model)) & own.keys()
    missing, extra = sorted(expected - set(weights)), sorted(set(weights) - set(own))
    if missing or extra:
        problem = f"lacks `{missing[0]}`" if missing else f"has `{extra[0]}`, which the model does not"
        more = len(missing) + len(extra) - 1
        raise CheckpointError(
            f"{where} does not fit the model: it {problem}" + (f" (and {more} more such tensors)" if more else ""),
            "it belongs to another model or another version of the recipe",
        )
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            raise CheckpointError(
                f"{where} does not fit the model: `{name}` is {tuple(tensor.shape)}, not {tuple(own[name].shape)}",
                "the sizes in recipe.toml, or the tokenizer, are those of another run",
            )
    model.load_state_dict({name: like(tensor, own[name]) for name, tensor in weights.items()}, strict=False)


def unique_names(model: nn.Module) -> list[str]:
    """State-dict names with every shared tensor named once: the name under which it is saved."""
    seen: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        seen.setdefault(id(tensor), name)
    return list(seen.values())


def weights_of(model: nn.Module, part: Collection[str] | None = None) -> dict[str, Tensor]:
    """What is saved of a model, or of a part of it by name."""
    state = model.state_dict()
    return {name: state[name] for name in unique_names(model) if part is None or name in part}


def fingerprint(model: nn.Module) -> str:
    """16 digits that change with any name, shape or bit of the weights."""
    digest = sha256()
    for name, tensor in sorted(weights_of(model).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def whole(tensor: Tensor) -> Tensor:
    """The tensor of which this rank may hold a slice. All ranks must ask for it together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor sliced over the ranks as `other` is; each rank cuts its slice from its own copy."""
    if not hasattr(other, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def versions() -> dict[str, str]:
    """What a result must be read with: versions and the machine."""
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
