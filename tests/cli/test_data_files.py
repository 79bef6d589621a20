"""The commands read every file type, and say which columns they recognised."""

import json
import sys
from pathlib import Path

import pytest

from clearformer.errors import DataError
from clearformer.tasks import PAIRS, Given
from clearformer.tasks.translation import TranslationTask

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import GRIDS, MEMORIES, TABLES, write_table

N = 211
ENGLISH = [f'the "{i}th" dog, or {i * i}; so' for i in range(N)]
FRENCH = [f"le {i}ᵉ chien" for i in range(N)]


def dry_run(cli, *arguments: str | Path) -> tuple[dict, str]:
    """The recipe of a dry run without the paths and columns of the data, and the summary of the data."""
    result = cli("train", *arguments, "--dry-run", "--json", "--device", "cpu")
    assert result.code == 0, result.err
    recipe = json.loads(result.out)
    recipe["data"].pop("train")
    return recipe, result.err


@pytest.mark.parametrize(
    ("flag", "columns", "said"),
    [
        ("--pairs", {"en": ENGLISH, "fr": FRENCH}, "using columns en and fr"),
        (
            "--labels",
            {"review": ENGLISH, "label": ["good", "bad"] * (N // 2) + ["bad"]},
            "using columns review and label",
        ),
        ("--text", {"text": ENGLISH}, "using column text"),
    ],
)
@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "tsv"])
def test_a_dry_run_is_the_same_for_every_type(
    cli, flag: str, columns: dict, said: str, kind: str, tmp_path: Path
) -> None:
    expected, err = dry_run(cli, flag, write_table("tsv", tmp_path, columns))
    assert f"the first line is a header; {said}" in " ".join(err.split())
    recipe, err = dry_run(cli, flag, write_table(kind, tmp_path, columns))
    assert recipe == expected
    assert said in " ".join(err.split())
    assert ("is a header" in " ".join(err.split())) == (kind in GRIDS)


@pytest.mark.parametrize("kind", MEMORIES)
def test_translation_memories(cli, kind: str, tmp_path: Path) -> None:
    columns = {"en": ENGLISH, "fr": FRENCH}
    expected, _ = dry_run(cli, "--pairs", write_table("tsv", tmp_path, columns))
    recipe, err = dry_run(cli, "--pairs", write_table(kind, tmp_path, columns))
    assert recipe == expected
    assert f"{N} pairs" in err or "pairs" in err


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "dataset"])
def test_labelled_words(cli, kind: str, tmp_path: Path) -> None:
    words = [["EU", "rejects", f"{i}"] for i in range(N)]
    columns = {"tokens": words, "labels": [["ORG", "O", "O"]] * N}
    path = tmp_path / "a.conll"
    path.write_text("".join(f"EU ORG\nrejects O\n{i} O\n\n" for i in range(N)))
    expected, _ = dry_run(cli, "--labels", path)
    assert dry_run(cli, "--labels", write_table(kind, tmp_path, columns))[0] == expected


def test_columns_that_are_not_recognised_are_asked_for(cli, tmp_path: Path) -> None:
    path = write_table("jsonl", tmp_path, {"de": ["a"], "en": ["b"], "fr": ["c"]})
    result = cli("train", "--pairs", path, "--dry-run")
    assert result.code == 1
    assert "hint: the columns are de, en, fr; choose with --columns" in " ".join(result.err.split())
    result = cli("train", "--labels", path, "--dry-run")
    assert result.code == 1
    assert "no key `text`" in " ".join(result.err.split())
    assert "choose with --text-columns and --label-column" in " ".join(result.err.split())
    result = cli("train", "--text", path, "--dry-run")
    assert result.code == 1
    assert "choose with --set data.train.column=NAME" in " ".join(result.err.split())
    assert cli("train", "--text", path, "--set", "data.train.column=fr", "--dry-run").code == 0
    assert cli("train", "--pairs", path, "--columns", "de,fr", "--dry-run").code == 0


@pytest.mark.parametrize("suffix", ["parquet", "xlsx", "json", "tmx", "csv.gz"])
def test_a_damaged_file_has_no_traceback(cli, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}.get(suffix, "json"))
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"\x1f\x8b damaged <x>" * 99)
    result = cli("train", "--pairs", path, "--dry-run")
    assert result.code == 1
    assert result.err.startswith("error: ")
    assert "hint: " in result.err
    assert "Traceback" not in result.err


def test_each_split_has_its_columns(tmp_path: Path) -> None:
    train = write_table("csv", tmp_path / "a", {"en": ["a"], "fr": ["b"]})
    valid = write_table("parquet", tmp_path / "b", {"fr": ["b"], "src": ["a"], "tgt": ["c"]})
    sources = TranslationTask.sources(Given(PAIRS, {"train": str(train), "valid": str(valid)}))
    assert [source["columns"] for source in sources.values()] == [("en", "fr"), ("src", "tgt")]
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(DataError, match="several splits"):
        TranslationTask.sources(Given(PAIRS, {"train": str(tmp_path)}))
