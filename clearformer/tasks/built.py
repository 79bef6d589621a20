"""What tasks check of a folder of `clearformer data build` before they train on it."""

from pathlib import Path
from typing import Any

from clearformer.data.built.folder import is_built
from clearformer.errors import ConfigError
from clearformer.tasks.task import Pretrained
from clearformer.text import Tokenizer


def built_folder(data: Any) -> Path | None:
    """The folder of `data build` that the training data is in; None for ordinary files."""
    path = data.source("train").path
    path = path[0] if isinstance(path, tuple) else path
    return path if is_built(path) else None


def refuse_other_tokenizers(folder: Path, tokenizers: list[Tokenizer], base: Pretrained | None) -> None:
    """Refuse shards that were tokenised with other tokenizers than those of the base model."""
    if base is None:
        return
    built, expected = ([tok.fingerprint() for tok in toks] for toks in (tokenizers, base.tokenizers))
    if built != expected[: len(built)]:
        raise ConfigError(
            f"{folder} was not tokenised with the vocabulary of {base.name}",
            f"build it again with --tokenizer {base.path}",
        )
