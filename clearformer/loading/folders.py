"""Which folder a model's name means: a run of ours, a folder of Hugging Face's, or what ships inside the package."""

from importlib.resources import files
from pathlib import Path

from clearformer.checkpoint import RunFolder
from clearformer.errors import CheckpointError, suggest

HINT = "name the --out folder of a training, or a folder of Hugging Face's with a config.json"
DEFAULT = "en-fr-small"  # what `clearformer translate` uses without --model


def bundled() -> dict[str, Path]:
    """The models that ship inside the package, by name."""
    folder = Path(str(files("clearformer") / "bundled" / "models"))
    return {path.name: path for path in sorted(folder.iterdir())} if folder.exists() else {}


def find(model: str | Path) -> Path:
    """The folder that a name means: a run folder or one of Hugging Face's, or else a bundled model."""
    path = Path(model)
    if not path.exists():
        shipped = bundled()
        if str(model) not in shipped:
            raise CheckpointError(
                f"there is no model `{model}`", f"{HINT}; or {suggest(str(model), shipped)}" if shipped else HINT
            )
        path = shipped[str(model)]
    if path.is_file():
        raise CheckpointError(f"{path} is a file, not a folder", f"if it is a model: clearformer import {path} OUT")
    if not is_foreign(path) and not RunFolder(path).exists:
        raise CheckpointError(f"{path} is not a run folder: it has no recipe.toml", HINT)
    return path


def is_foreign(path: Path) -> bool:
    """A folder of Hugging Face's rather than ours."""
    return (path / "config.json").exists() and not RunFolder(path).exists
