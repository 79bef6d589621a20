"""data build: tokenise pairs or text once, into a folder of shards that `train` opens at once."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from clearformer.checkpoint import RunFolder, write_json
from clearformer.data.built import documents, pairs
from clearformer.data.built.folder import BUILDING, Index, is_built, read_index
from clearformer.data.corpora import PairCorpora, StreamCorpora
from clearformer.data.objects.staging import staged
from clearformer.data.pair_blocks import Fractions
from clearformer.errors import ConfigError
from clearformer.tables import override
from clearformer.tasks import TASKS, collect
from clearformer.tasks.given_objects import sources_of
from clearformer.tasks.task import load_tokenizers, save_tokenizers
from clearformer.text import TextConfig, Tokenizer
from clearformer.training.journal import console
from clearformer.verbs.choices import Settings, all_settings


@staged()
def build_data(
    out: str | Path,
    *,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    settings: Settings = (),
    workers: int | None = None,
    **data: Any,
) -> dict[str, Any]:
    """Tokenise pairs= or text= into shards in the folder `out`, and return its index.

    Data is given as for `train`: files, or any object with __len__ and __getitem__. `tokenizer` is a tokenizer.json, or
    a run folder whose tokenizers are used; otherwise a vocabulary of `vocab_size` tokens is learnt from a sample.
    `settings` change the tables [text] and [data], as for --set. Started again after an interruption, the same call
    keeps the shards that are finished.
    """
    given = collect(data)
    if given is None or given.flag.name not in ("pairs", "text"):
        raise ConfigError("no pairs or text to build from", "give --pairs train.tsv or --text book.txt")
    task = TASKS.resolve(given.flag.task)
    table = override({"data": sources_of(task, given), "text": {}}, all_settings(settings))
    for name in table:
        if name not in ("data", "text"):
            raise ConfigError(
                f"--set {name}: data build has only the tables [data] and [text]", "train sets the others"
            )
    if vocab_size is not None:
        table["text"]["vocab_size"] = vocab_size
    elif "vocab_size" not in table["text"]:
        table["text"] |= {"vocab_size": 16_000, "strict": False}
    usual = {"kind": "bpe"} if given.flag.name == "pairs" else {"kind": "byte-bpe", "whitespace": "keep"}
    table["text"] = usual | table["text"]
    text = TextConfig.parse(table["text"], "[text]")
    folder = Path(out)
    build = build_pairs if given.flag.name == "pairs" else build_text
    index = build(folder, table["data"], text, None if tokenizer is None else Path(tokenizer), workers)
    return {"folder": str(folder), **index.dump()}


def build_pairs(folder: Path, table: Any, text: TextConfig, tokenizer: Path | None, workers: int | None) -> Index:
    data = PairCorpora.parse(table, "[data]")
    facts: dict[str, Any] = {
        "data": data.model_dump(mode="json"),
        "text": text.model_dump(mode="json"),
        "tokenizer": str(tokenizer),
    }
    facts["files"] = stamps(data)
    if (done := claim(folder, facts)) is not None:
        return done
    n_lines = pairs.estimated_lines(data.source("train"))
    fractions = Fractions(
        data.fraction(n_lines) if data.valid is None else 0.0, data.held_out_test if data.test is None else 0.0
    )
    with console.status("learning the vocabulary"):
        tokenizers = known_tokenizers(folder, tokenizer, lambda: pairs.learn(data, text, n_lines, fractions), 2)
    with console.status("tokenising"):
        n_shards = pairs.build_shards(data, tokenizers, fractions, folder, workers)
        index = pairs.finish(data, tokenizers, folder, n_shards, kept_tables(facts))
    for line in index.report:
        console.print(line, markup=False)
    return index


def build_text(folder: Path, table: Any, text: TextConfig, tokenizer: Path | None, workers: int | None) -> Index:
    data = StreamCorpora.parse(table, "[data]")
    facts: dict[str, Any] = {
        "data": data.model_dump(mode="json"),
        "text": text.model_dump(mode="json"),
        "tokenizer": str(tokenizer),
    }
    facts["files"] = stamps(data)
    if (done := claim(folder, facts)) is not None:
        return done
    with console.status("learning the vocabulary"):
        (known,) = known_tokenizers(folder, tokenizer, lambda: [documents.learn(data, text)], 1)
    with console.status("tokenising"):
        index = documents.build(data, known, folder, kept_tables(facts), workers)
    for line in index.report:
        console.print(line, markup=False)
    return index


def kept_tables(facts: dict[str, Any]) -> dict[str, Any]:
    """The parts of the recipe that the shards depend on, and the key of the whole."""
    data = {key: value for key, value in facts["data"].items() if key in ("filter", "prefix", "joined")}
    return {"text": facts["text"], "data": data, "key": facts["key"]}


def stamps(data: Any) -> list[list[Any]]:
    """The name, size and time of each file, so that a changed corpus is not mixed with shards of the old one."""
    sources = [source for split in ("train", "valid", "test") if (source := data.source(split)) is not None]
    files = [path for source in sources for path in (source.path if isinstance(source.path, tuple) else (source.path,))]
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files if path.exists()]


def claim(folder: Path, facts: dict[str, Any]) -> Index | None:
    """Begin to build in a folder, or continue; return the index if it is complete already."""
    key = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    if (folder / BUILDING).is_file() or is_built(folder):
        known = read_index(folder).tables.get("key") if is_built(folder) else read_key(folder)
        if known != key:
            raise ConfigError(
                f"{folder} was built, or begun, from other data or settings",
                "choose another --out, or delete the folder",
            )
        if is_built(folder):
            console.print(f"{folder} is complete already")
            return read_index(folder)
        console.print(f"continuing {folder}")
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty", "choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / BUILDING, {"key": key, **facts})
    facts["key"] = key
    return None


def read_key(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / BUILDING).read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def known_tokenizers(
    folder: Path, chosen: Path | None, learn: Callable[[], list[Tokenizer]], n: int
) -> list[Tokenizer]:
    """The tokenizers of a folder that was begun, of a run folder or a file, or newly learnt ones, which are saved."""
    run = RunFolder(folder)
    names = ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json")
    if (folder / names[0]).exists() or all((folder / name).exists() for name in names[1:]):
        return load_tokenizers(run, n)
    if chosen is None:
        learnt = learn()
    elif chosen.is_dir():
        learnt = load_tokenizers(RunFolder(chosen), n)
    else:
        learnt = [Tokenizer.load(chosen)] * n
    save_tokenizers(run, learnt[0], learnt[-1])
    return learnt
