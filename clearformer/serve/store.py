"""The models that a server knows by name, opened when they are first used.

en-fr-small          the bundled translator
NAME                 the name of each folder given by --model
NAME                 each adapter given by --adapter NAME=RUN, served by the engine of its base
runs/NAME            every run folder below the folder given by --runs that has weights

A model has one engine, whose thread does all its work. The models given by --model stay in memory. Of the others, the
one that was used least recently makes room for a new one, unless it is at work.

When the weights in its folder change, the new weights are read and take the place of the old ones: requests that have
begun end with the old weights. A folder that is removed, or whose new weights cannot be read, leaves the model in
memory as it is.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

from clearformer.checkpoint import RunFolder
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, MachineError, suggest
from clearformer.handles.handle import Handle, describe_architecture
from clearformer.handles.translator import Translator, refuse_to_cut
from clearformer.lens.patches import zero_heads
from clearformer.lens.points import points
from clearformer.lens.session import Lens, Patch
from clearformer.loading.folder import DEFAULT, find, read_recipe, task_of
from clearformer.loading.open import located, open_model
from clearformer.recipe import Recipe
from clearformer.serve.budget import Budget
from clearformer.serve.engine import Engine
from clearformer.serve.limits import Limits
from clearformer.serve.opener import Opener
from clearformer.serve.scheduler import Room
from clearformer.serve.work import Busy
from clearformer.tasks.task import Pretrained
from clearformer.threads import use_few_threads

MOST_OPEN = 4  # models in memory, or one more than those given by --model
DEPTH = 3  # folders below --runs
RETRY_SECONDS = 5.0  # until a model may have finished its work and make room for another one


class Adapter(NamedTuple):
    """The name of the base of an adapter, and the folder of its run."""

    base: str
    path: Path


@dataclass
class Opened:
    """A model in memory with its engine. `problem` says why its folder could not be read again.

    `opener` has the stamps of the files that it was read from, those of its adapters included. `timeout` is how many
    seconds a request waits to use it alone.
    """

    handle: Handle
    opener: Opener
    engine: Engine
    problem: str | None = None
    timeout: float = Limits.seconds
    loading: Any = field(default_factory=Lock)
    used_at: float = field(default_factory=time.monotonic)

    def close_if_idle(self) -> bool:
        """Close the engine for good unless it has work; returns whether it is closed."""
        if not self.loading.acquire(blocking=False):  # and nobody reads it again any more
            return False
        if self.engine.close_if_idle():
            return True
        self.loading.release()
        return False

    @contextmanager
    def use(self, off: Sequence[str] = ()) -> Iterator[Handle]:
        """Yield the handle between two steps of its engine, since a lens changes the model while it works.

        Raises Expired if the engine does not come to that in time.
        The heads in `off` are switched off: LAYER[HEADS], as in decoder.blocks.1.cross[0,2].
        """
        with self.engine.paused(self.timeout) as handle:
            patches = switched_off(handle, off)
            with Lens(handle.model, put=patches) if patches else nullcontext():
                yield handle


def switched_off(handle: Handle, off: Sequence[str]) -> dict[str, Patch]:
    """Return the patches that switch heads off at z, after the pattern: the pattern itself can still be seen."""
    layers: list[str] | None = None
    heads: dict[str, list[int]] = {}
    for text in off:
        match = re.fullmatch(r"([\w.]+)\[(\d+(?:,\d+)*)\]", text.replace(" ", ""))
        if match is None:
            raise ConfigError(f"`{text}` does not name heads", "write LAYER[HEADS]: decoder.blocks.1.cross[0,2]")
        if layers is None:
            layers = [name.removesuffix(".z") for name in points(handle.model) if name.endswith(".z")]
        if match[1] not in layers:
            hint = suggest(match[1], layers) if layers else "choose a Transformer"
            raise ConfigError(f"{handle.name} has no attention layer `{match[1]}` with heads", hint)
        heads.setdefault(f"{match[1]}.z", []).extend(map(int, match[2].split(",")))
    return {name: zero_heads(*chosen) for name, chosen in heads.items()}


class Store:
    """Models by name. `runs` is a folder of run folders, which is searched whenever a list is asked for."""

    def __init__(
        self,
        models: Sequence[str | Path] = (),
        runs: str | Path | None = None,
        device: str = "cpu",
        queue: int = Limits.queue,
        read: Callable[[Path, str], Pretrained] = open_model,
        adapters: Mapping[str, str | Path] | None = None,
        workers: int | None = 0,
        timeout: float = Limits.seconds,
    ) -> None:
        """`read` opens a folder on a device: by default with the weights as they are, so that a lens sees the same
        numbers as the commands; or packed, which is faster and rounds differently. `workers` is the number of processes
        that decode each model, None for as many as suit its size; `timeout` is how many seconds a request waits to use
        a model alone."""
        self.runs, self.device, self.queue, self.read = None if runs is None else Path(runs), device, queue, read
        self.workers, self.timeout = workers, timeout
        if self.runs is not None and not self.runs.is_dir():
            raise CheckpointError(f"there is no folder {self.runs}", "give a folder with run folders, such as runs/")
        self.given: dict[str, Path] = {}
        for model in models or [DEFAULT]:
            path = find(model)
            name = path.name or str(path.resolve().name)
            known = self.given.setdefault(name, path)
            if known.resolve() != path.resolve():
                self.given[str(path)] = path
        self.adapters: dict[str, Adapter] = {}
        for name, folder in (adapters or {}).items():
            self.adapters[name] = self.locate(name, find(folder))
        self.opened: dict[str, Opened] = {}
        self.locks: dict[str, Any] = {}
        self.lock = Lock()
        self.opening: set[str] = set()  # models that have a place, and are not in memory yet
        self.budget: Budget | None = None
        self.is_closing = False

    @property
    def default(self) -> str:
        return next(iter(self.given))

    def run_folders(self) -> dict[str, Path]:
        """Return every folder below `runs` that has a recipe or metrics, by its relative path, most recent first."""
        if self.runs is None:
            return {}
        folders: dict[str, tuple[float, Path]] = {}
        for depth in range(DEPTH + 1):
            for name in ("recipe.toml", "metrics.jsonl"):
                for file in self.runs.glob("/".join(["*"] * depth + [name])):
                    relative = file.parent.relative_to(self.runs).as_posix()
                    key = self.runs.resolve().name if relative == "." else relative
                    folders[key] = (changed_at(file.parent), file.parent)
        ordered = sorted(folders.items(), key=lambda item: (-item[1][0], item[0]))
        return {name: path for name, (_, path) in ordered}

    def paths(self) -> dict[str, Path]:
        """Return the folders of all models by name."""
        trained = {f"runs/{name}": path for name, path in self.run_folders().items() if RunFolder(path).model.exists()}
        return {**self.given, **{name: path for name, (_, path) in self.adapters.items()}, **trained}

    def describe(self) -> list[dict[str, Any]]:
        """Describe all models from their recipes, without reading weights."""
        return [describe(name, path) for name, path in self.paths().items()]

    def locate(self, name: str, path: Path) -> Adapter:
        """Return the name of the model that an adapter was trained on, and its folder."""
        if name in self.given or name in self.adapters:
            raise ConfigError(f"--adapter {name}: there is already a model of this name", "choose another name")
        tuning = read_recipe(path).tuning
        if tuning is None or tuning.base is None:
            hint = f"serve it as a model of its own: --model {path}"
            raise CheckpointError(f"--adapter {name}: {path} is not the run of an adapter", hint)
        base = find(str(located(tuning, path).base)).resolve()
        known = next((known for known, folder in self.given.items() if folder.resolve() == base), None)
        if known is None:
            message = f"--adapter {name}: its base {tuning.base} is not among the models"
            raise CheckpointError(message, f"add --model {base}")
        return Adapter(known, path)

    def serve(self, name: str | None = None) -> tuple[Opened, str | None]:
        """Return the model whose engine does the work of a name, and the adapter to use."""
        adapter = self.adapters.get(name or "")
        return (self.open(name), None) if adapter is None else (self.open(adapter.base), name)

    def serve_now(self, name: str | None) -> tuple[Opened, str | None] | None:
        """Return the same if it is in memory and up to date, without waiting."""
        adapter = self.adapters.get(name or "")
        opened = self.open_now(name if adapter is None else adapter.base)
        return None if opened is None else (opened, None if adapter is None else name)

    def find(self, name: str | None = None) -> tuple[str, Path]:
        """Return the name and the folder of a model, of the first one by default."""
        name = name or self.default
        path = self.given.get(name) or self.paths().get(name)
        if path is None:
            raise CheckpointError(f"there is no model called `{name}`", suggest(name, self.paths()))
        return name, path

    def open(self, name: str | None = None) -> Opened:
        """Return a model by its name, the first one by default. A run that has a better checkpoint is read again.

        While one thread reads it again, the others use what is in memory.
        """
        name, path = self.find(name)
        opened = self.opened.get(name)
        if opened is None:
            with self.locks.setdefault(name, Lock()):
                return self.opened.get(name) or self.open_first(name, path)
        opened.used_at = time.monotonic()
        if self.is_changed(opened, name, path) and opened.loading.acquire(blocking=False):
            try:
                self.open_again(opened, name, path)
            finally:
                opened.loading.release()
        return opened

    def adapters_of(self, name: str) -> dict[str, Path]:
        return {adapter: path for adapter, (base, path) in self.adapters.items() if base == name}

    def opener(self, name: str, path: Path) -> Opener:
        return Opener(path, self.device, self.read, self.adapters_of(name))

    def is_changed(self, opened: Opened, name: str, path: Path) -> bool:
        """Whether a file is not the one that was read. A file that is gone does not count."""
        stamps = self.opener(name, path).stamps
        return any(new not in (None, old) for new, old in zip(stamps, opened.opener.stamps))

    def open_now(self, name: str | None) -> Opened | None:
        """Return a model if it is in memory and up to date, without waiting."""
        name, path = self.find(name)
        opened = self.opened.get(name)
        if opened is None or self.is_changed(opened, name, path):
            return None
        opened.used_at = time.monotonic()
        return opened

    def open_first(self, name: str, path: Path) -> Opened:
        opener = self.opener(name, path)
        with self.lock:
            self.make_room(name)
            self.opening.add(name)
        try:
            try:
                handle, adapters = self.load(opener)
            except (ClearformerError, OSError, ValueError) as error:
                raise self.unreadable(name, error, path) from error
            with self.lock:
                self.budget = self.budget or Budget(Room.of(handle.device).bytes)
            engine = Engine(
                handle,
                adapters,
                max_waiting=self.queue,
                opener=opener,
                n_workers=self.workers,
                budget=self.budget,
            )
            opened = Opened(handle, opener, engine, timeout=self.timeout)
            with self.lock:
                self.opened[name] = opened
        finally:
            self.opening.discard(name)
        return opened

    def unreadable(self, name: str, error: Exception, folder: Path) -> ClearformerError:
        """Return the error of a request for a model that cannot be opened. It is not the client's, and no bug.

        The models given by --model are opened when the server starts, and the command says where they are.
        """
        if isinstance(error, MachineError) or (isinstance(error, ClearformerError) and name in self.given):
            return error
        message = f"`{name}` cannot be opened: {problem_of(error, folder)}"
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return MachineError(message, "check the permissions, disks and limits of the server, or try again")
        return CheckpointError(message, getattr(error, "hint", None) or "choose another model, or train it again")

    def make_room(self, name: str) -> None:
        """Close idle models, the one that was used least recently first, until there is a place for another one.

        Raises Busy if the others are at work. A model given by --model always has a place.
        """
        most = max(MOST_OPEN, len(self.given) + 1)
        while name not in self.given and len({*self.opened, *self.opening, *self.given}) >= most:
            others = sorted(
                (known for known in self.opened if known not in self.given),
                key=lambda known: self.opened[known].used_at,
            )
            idle = next((known for known in others if self.opened[known].close_if_idle()), None)
            if idle is None:
                count = len(self.opened) + len(self.opening)
                raise Busy(f"{count} models are in memory, and none of them is idle", RETRY_SECONDS)
            del self.opened[idle]

    def open_again(self, opened: Opened, name: str, path: Path) -> None:
        opener = opened.opener = self.opener(name, path)
        try:
            handle, adapters = self.load(opener)
            opened.engine.swap(handle, adapters, opener)
        except (ClearformerError, OSError, ValueError) as error:
            opened.problem = problem_of(error, path)
            return
        opened.handle, opened.problem = handle, None

    def load(self, opener: Opener) -> tuple[Handle, dict[str, Handle]]:
        """Return the handle of a model, and the handles of its adapters."""
        handle, adapters = opener.open()
        use_few_threads(handle.model, 1)
        for one in (handle, *adapters.values()):
            if isinstance(one, Translator):
                one.cut = refuse_to_cut
        return handle, adapters

    def close(self, seconds: float = 0.0) -> None:
        """End all engines at once, within some seconds."""
        self.is_closing = True
        threads = [Thread(target=opened.engine.close, args=[seconds]) for opened in self.opened.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def describe(name: str, path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "task": None, "architecture": None, "verbs": [], "problem": None}
    try:
        recipe = read_recipe(path)
        kind = get_type_hints(task_of(recipe).handle)["return"]
        kind = next(iter(get_args(kind)), kind)  # of a union, the class that can do more
        facts |= {"task": recipe.objective.kind, "architecture": architecture_of(recipe)}
        facts["verbs"] = list(getattr(kind, "verbs", ()))
    except (ClearformerError, OSError, ValueError) as error:
        facts["problem"] = problem_of(error, path)
    return facts


def architecture_of(recipe: Recipe) -> str:
    """Describe the model of a recipe as a handle does, without building it."""
    model: Any = SimpleNamespace(config=recipe.model)
    return describe_architecture(model)


def problem_of(error: Exception, folder: Path) -> str:
    """Return one sentence for an error in a run folder that may be written, moved or removed at any time."""
    if isinstance(error, ClearformerError):
        return error.message.replace(f"{folder}/", "")  # the name of the run is beside the sentence
    if isinstance(error, FileNotFoundError):
        return "a file has been removed" if folder.exists() else "the folder has been removed"
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    return f"the files cannot be read: {reason}"


def changed_at(folder: Path) -> float:
    """Return the time of the last line of metrics, or of the last file written; 0 if the folder is gone."""
    for path in (RunFolder(folder).metrics, folder):
        try:
            return path.stat().st_mtime
        except OSError:
            continue
    return 0.0
