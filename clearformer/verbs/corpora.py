"""The files that a user names, as a recipe's [data] names them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearformer.data.labels import Column, named_columns
from clearformer.data.sources import Columns
from clearformer.data.tags import is_tagged

Name = str | Path
Corpus = Name | tuple[Name, Name]
Texts = Name | Sequence[Name]
TextColumns = Column | tuple[Column, Column] | None


def as_paths(corpus: Corpus) -> Path | tuple[Path, Path]:
    return (Path(corpus[0]), Path(corpus[1])) if isinstance(corpus, tuple) else Path(corpus)


def sources_of(corpora: dict[str, Corpus], columns: Columns) -> dict[str, dict[str, Any]]:
    """Corpora by split as the [data] table of a recipe writes them."""
    return {split: {"path": as_paths(corpus), "columns": columns} for split, corpus in corpora.items()}


def written(corpora: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Running text by split, one file or several, likewise."""
    lists = {split: [texts] if isinstance(texts, str | Path) else texts for split, texts in corpora.items()}
    return {split: {"path": tuple(map(Path, texts))} for split, texts in lists.items()}


def pictured(corpora: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Pictures by split, likewise."""
    return {split: {"path": Path(path)} for split, path in corpora.items()}


def labelled(corpora: dict[str, Any], text: TextColumns, label: Column | None) -> dict[str, dict[str, Any]]:
    """Labelled files by split, likewise. Where no columns are given, a header that names them is believed."""
    names = ("words", "labels") if is_tagged(Path(corpora["train"])) else ("text", "label")
    given = {key: value for key, value in zip(names, (text, label)) if value is not None}
    return {split: {"path": Path(path), **(given or named_columns(Path(path)))} for split, path in corpora.items()}
