"""Model files of unknown origin: damaged, hostile, or no files at all. Each is refused with one sentence."""

import io
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w
import torch
from torch import nn

import clearformer
from clearformer.checkpoint import RunFolder, open_tensors, read_class_file, read_report, weights_of
from clearformer.errors import CheckpointError, ClearformerError, ConfigError, TokenizerError
from clearformer.interop.huggingface.folder import read_json, read_template, shard_names
from clearformer.interop.huggingface.pickled import read_pickle
from clearformer.interop.origin import Origin
from clearformer.loading.folder import check_fit, foreign_recipe, read_classes
from clearformer.loading.open import open_model
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.recipe import Recipe
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.training.journal import read_metrics
from clearformer.training.progress import check_facts

DEEP = ["[" * 10**5, '{"a":' * 10**5]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tokenizer = train_tokenizer(["the dog sees a tree"], TextConfig(kind="word", min_frequency=1))
    sizes = {"kind": "gpt", "n_layers": 1, "n_heads": 2, "d_model": 14, "d_ff": 13, "vocab": tokenizer.vocab_size}
    network = build_model(parse_model(sizes, "[model]"))
    recipe = foreign_recipe(network.config, Origin(source="x"))
    write_run(tmp_path / "run", recipe, weights_of(network), [tokenizer])
    return tmp_path / "run"


@pytest.mark.parametrize("chain", [1, 2, 3])
def test_a_model_that_is_its_own_base(run: Path, chain: int) -> None:
    """Directly, or through others."""
    for i in range(chain):
        copy = Path(shutil.copytree(run, run.parent / f"run{i}"))
        recipe = tomllib.loads((copy / "recipe.toml").read_text())
        recipe["tuning"] = {"method": "lora", "base": f"../run{(i + 1) % chain}"}
        (copy / "recipe.toml").write_text(tomli_w.dumps(recipe))
    with pytest.raises(CheckpointError, match="is its own base model"):
        open_model(run.parent / "run0")


@pytest.mark.parametrize("text", DEEP)
def test_values_inside_values_without_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        read_json(path, "hint")
    (tmp_path / "classes.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"classes\.json cannot be read"):
        read_classes(tmp_path)
    with pytest.raises(TokenizerError, match=r"not a valid tokenizer\.json|cannot be used"):
        Tokenizer(text)
    (tmp_path / "recipe.toml").write_text(f"a = {text.replace(':', '=')}")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        Recipe.read(tmp_path / "recipe.toml")


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 3}}, {"weight_map": {"a": "../b"}}])
def test_an_index_of_shards_lists_files_of_its_folder(index: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match=r"index\.json (does not list|lists)"):
        shard_names(index, Path("model.safetensors.index.json"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, zero])
@pytest.mark.parametrize("name", ["recipe.toml", "model.safetensors", "tokenizer.json"])
def test_a_pipe_or_a_device_is_no_model_file(run: Path, make: Callable[[Path], None], name: str) -> None:
    make(run / name)
    with pytest.raises(ClearformerError, match=f"{name}.*not a regular file"):
        clearformer.load(run)


def test_a_tensor_that_is_larger_than_its_file(tmp_path: Path) -> None:
    """A stride of 0 repeats one number without end: a petabyte in a kilobyte."""
    torch.save({"a": torch.ones(1).expand(10**15)}, tmp_path / "a.pth")
    assert (tmp_path / "a.pth").stat().st_size < 3000
    with pytest.raises(CheckpointError, match="`a` is larger than what the file holds"):
        read_pickle(tmp_path / "a.pth")
    torch.save({"a": torch.ones(3, 5).T}, tmp_path / "b.pth")
    assert read_pickle(tmp_path / "b.pth")["a"].shape == (5, 3)


def test_other_pickles(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x80\x02" + b"(" * 10**5):
        (tmp_path / "a.pth").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"a\.pth (cannot be read|contains objects)"):
            read_pickle(tmp_path / "a.pth")
    torch.save({"a": nn.Linear(2, 3)}, buffer := io.BytesIO())
    (tmp_path / "a.pth").write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match=r"a\.pth cannot be read"):
        read_pickle(tmp_path / "a.pth")


@pytest.mark.parametrize("template", ["\xff", [3], [{"name": "default", "template": 3}]])
def test_a_chat_template_of_another_type(tmp_path: Path, template: object) -> None:
    if isinstance(template, str):
        (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
        with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
            read_template(tmp_path)
    else:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        assert read_template(tmp_path) is None


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50}
GROWING = {
    "a chain of replacements": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 9}},
    "sequences in sequences": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [REPLACE] * 3}] * 3}
    },
    "in the decoder": {"decoder": {"type": "Sequence", "decoders": [REPLACE] * 9}},
    "special tokens": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}] * 2000,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}},
        }
    },
}


@pytest.mark.parametrize("kind", GROWING)
def test_a_tokenizer_that_explodes(kind: str) -> None:
    content = json.loads(train_tokenizer(["the dog"], TextConfig(kind="word", min_frequency=1)).to_json())
    with pytest.raises(TokenizerError, match=r"10,000 times as long|more than 1,000 special tokens"):
        Tokenizer(json.dumps(content | GROWING[kind]), "tokenizer.json")


@pytest.mark.parametrize("number", [2**31, 10**9, -1])
def test_numbers_of_tokens_far_apart(tmp_path: Path, number: int) -> None:
    """The Rust library would list every number between them, and end the process."""
    (tmp_path / "vocab.json").write_text(json.dumps({"<|endoftext|>": 0, "a": 1, "b": number}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(TokenizerError, match=r"far beyond the size|cannot be (used|read)"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("line", ['{"step": "x"}', "[]", "{", "[" * 10**5, '{"step": 1, "kind": "train", "loss": []}'])
def test_a_damaged_log_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "loss": 2.5}\n' + line + "\n")
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: record 2 is not one of training"):
        read_metrics(tmp_path / "metrics.jsonl")


GOOD = {
    "progress": {"step": 3, "epoch": 0, "position": 4},
    "meter": {"sums": [0.0, 1.0], "tokens": 5, "steps": 2, "seconds": 0.5},
    "optimizer": "Adam",
}


@pytest.mark.parametrize(
    "change",
    [
        {"progress": 3}, {"progress": {"steps": 3}}, {"progress": {"step": "x"}}, {"progress": {"step": -1}},
        {"meter": None}, {"meter": {"sums": [1]}}, {"optimizer": 3}, {"meter": {**GOOD["meter"], "tokens": 1e300}},  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_damaged_progress_is_refused_as_a_whole(change: dict[str, object]) -> None:
    check_facts(GOOD, "last.safetensors")
    with pytest.raises(CheckpointError, match=r"last\.safetensors: its header does not say how far the run is"):
        check_facts({**GOOD, **change}, "last.safetensors")


@pytest.mark.parametrize("report", ["", "[]", '{"steps": "x"}', "[" * 10**5])
def test_a_damaged_report_is_named(tmp_path: Path, report: str) -> None:
    (tmp_path / "report.json").write_text(report)
    with pytest.raises(CheckpointError, match=r"report\.json cannot be read"):
        read_report(RunFolder(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{}", b'["a", \xbd]', b'["a", ', b"[[]]"])
def test_damaged_classes_are_named_when_a_run_is_resumed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "classes.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"classes\.json cannot be read"):
        read_class_file(tmp_path / "classes.json")


def test_a_model_of_another_kind_than_its_objective(run: Path) -> None:
    model = open_model(run)
    sizes = {"kind": "transformer", "source_vocab": 7, "target_vocab": 7}
    other = foreign_recipe(parse_model(sizes, "[model]"), Origin(source="x"))
    with pytest.raises(CheckpointError, match="a model of kind `transformer` does not have the tokenizers"):
        check_fit(model.tokenizers[:1], other, run)


def test_a_header_with_sizes_beyond_the_file(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with (
        pytest.raises(CheckpointError, match="truncated or not a safetensors file"),
        open_tensors(tmp_path / "a.safetensors"),
    ):
        pass
