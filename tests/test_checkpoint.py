import json
import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from clearformer import checkpoint
from clearformer.checkpoint import (
    RunFolder,
    atomically,
    like,
    load_tensors,
    load_weights,
    read_facts,
    read_shapes,
    save_tensors,
    versions,
    weights_of,
    whole,
    write_json,
    write_text,
)
from clearformer.errors import CheckpointError, MachineError

each_reader = pytest.mark.parametrize("read", [load_tensors, read_facts, read_shapes])


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    return model


def test_tensors_and_facts_come_back(tmp_path):
    tensors = {"a": torch.randn(2, 3), "b": torch.arange(5), "c": torch.tensor(1 / 3, dtype=torch.float64)}
    facts = {"step": 7, "seconds": 1 / 3, "scores": {"bleu": 2.5}, "best": None}
    save_tensors(tmp_path / "x.safetensors", tensors, facts)
    found, told = load_tensors(tmp_path / "x.safetensors")
    assert told == facts
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_facts_and_shapes_are_read_from_the_header_alone(tmp_path, headers_only):
    tensors = {"a": torch.randn(2, 3), "b": torch.arange(5), "c": torch.tensor(1 / 3, dtype=torch.float64)}
    save_tensors(tmp_path / "x.safetensors", tensors, {"step": 7, "classes": ["dog", "cat"]})
    headers_only()
    assert read_facts(tmp_path / "x.safetensors") == {"step": 7, "classes": ["dog", "cat"]}
    assert read_shapes(tmp_path / "x.safetensors") == {"a": (2, 3), "b": (5,), "c": ()}
    with pytest.raises(AssertionError, match="a header is all that may be read"):
        load_tensors(tmp_path / "x.safetensors")


def test_views_of_one_storage_are_saved_apart(tmp_path):
    table = torch.arange(12.0).view(3, 4)
    save_tensors(tmp_path / "x.safetensors", {"row": table[1], "column": table[:, 2]})
    found, _ = load_tensors(tmp_path / "x.safetensors")
    assert found["row"].tolist() == [4, 5, 6, 7]
    assert found["column"].tolist() == [2, 6, 10]


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path):
    path = tmp_path / "facts.json"
    write_text(path, "old")
    with pytest.raises(AttributeError), atomically(path) as draft:
        draft.write_text("half").fall_over()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["facts.json"]


def test_a_file_takes_its_place_only_when_whole(tmp_path):
    path = tmp_path / "facts.json"
    with atomically(path) as draft:
        draft.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"


def test_files_have_the_mode_that_the_umask_gives(tmp_path, mode, modes):
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3)})
    write_text(tmp_path / "x.txt", "text")
    write_json(tmp_path / "x.json", {})
    assert modes(tmp_path) == {mode}
    for path in tmp_path.iterdir():
        path.chmod(0o640)
    save_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3)})
    write_text(tmp_path / "x.txt", "another")
    write_json(tmp_path / "x.json", [])
    assert modes(tmp_path) == {mode}


def test_what_a_killed_process_of_the_same_number_left_is_replaced(tmp_path, mode, modes):
    draft = tmp_path / f".x.txt.{os.getpid()}"
    draft.write_text("half")
    draft.chmod(0o604)
    with atomically(tmp_path / "x.txt") as draft:
        assert draft.read_text() == ""
        draft.write_text("whole")
    assert modes(tmp_path) == {mode}


def test_who_reads_while_a_file_is_replaced_reads_the_old_one_whole(tmp_path):
    path = tmp_path / "facts.json"
    write_text(path, "old, to its end")
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old, to its end"
    assert path.read_text() == "new"


def test_json_is_readable(tmp_path):
    write_json(tmp_path / "x.json", {"name": "naïve"})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n  "name": "naïve"\n}\n'


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MachineError, match=r"file/x.json cannot be written"):
        write_json(tmp_path / "file" / "x.json", {})


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(MachineError, match=r"the disk is full\nhint: .*intact"):
        save_tensors(tmp_path / "x.safetensors", {})


@each_reader
def test_a_missing_file_is_said(tmp_path, read):
    with pytest.raises(CheckpointError, match=r"x.safetensors does not exist\nhint: train first"):
        read(tmp_path / "x.safetensors")


@each_reader
@pytest.mark.parametrize("write", [lambda x, file: pickle.dump(x, file), lambda x, file: torch.save(x, file)])
def test_a_pickle_is_never_opened(tmp_path, write, read):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        write({"a": Trap()}, file)
    with pytest.raises(CheckpointError, match="pickled file; only safetensors files are supported"):
        read(path)
    assert not (tmp_path / "sprung").exists()


@each_reader
def test_a_folder_in_place_of_a_file_is_said(tmp_path, read):
    with pytest.raises(CheckpointError, match=r"not a safetensors file"):
        read(tmp_path)


def test_another_programs_file_has_no_facts(tmp_path):
    save_file({"a": torch.ones(3)}, tmp_path / "x.safetensors", metadata={"format": "pt"})
    tensors, facts = load_tensors(tmp_path / "x.safetensors")
    assert tensors["a"].tolist() == [1, 1, 1]
    assert facts == read_facts(tmp_path / "x.safetensors") == {}


@pytest.mark.parametrize("read", [load_tensors, read_facts])
@pytest.mark.parametrize("facts", ["[1, 2]", "7", "{", "[" * 100_000])
def test_facts_that_are_no_json_object_are_refused(tmp_path, read, facts):
    save_file({"a": torch.ones(3)}, tmp_path / "x.safetensors", metadata={"clearformer": facts})
    with pytest.raises(CheckpointError, match=r"x.safetensors is truncated or not a safetensors file"):
        read(tmp_path / "x.safetensors")


@each_reader
def test_truncation_anywhere_is_noticed(tmp_path, read):
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.randn(5, 7)})
    content = path.read_bytes()
    for n in range(0, len(content), 11):
        path.write_bytes(content[:n])
        with pytest.raises(CheckpointError):
            read(path)


@each_reader
@pytest.mark.parametrize("change", [("[5,7]", "[5,8]"), ("[0,140]", "[0,999]"), ('"F32"', '"F64"')])
def test_a_header_that_says_more_than_the_file_holds_is_refused(tmp_path, read, change):
    """A (5, 7) of float32 is 140 bytes."""
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.randn(5, 7)}, path)
    old, new = (text.encode() for text in change)
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(CheckpointError, match=r"not a safetensors file"):
        read(path)


def test_tied_weights_are_stored_once(tmp_path):
    one, two = tied(), tied()
    assert list(weights_of(one)) == ["0.weight"]
    load_weights(two, weights_of(one), "here")
    assert torch.equal(two[1].weight, one[0].weight)
    assert two[0].weight is two[1].weight


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ({}, "`0.weight` is missing"),
        ({"0.weight": torch.zeros(3, 3), "2.bias": torch.zeros(3)}, "the model has no tensor `2.bias`"),
        ({"0.weight": torch.zeros(3, 5)}, r"`0.weight` has the shape \(3, 5\), not \(3, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(weights, complaint):
    with pytest.raises(CheckpointError, match=f"here does not fit the model: .*{complaint}"):
        load_weights(tied(), weights, "here")


def test_nothing_is_loaded_when_something_does_not_fit():
    model = nn.Linear(3, 5)
    before = weights_of(model)["weight"].clone()
    with pytest.raises(CheckpointError, match="`bias`"):
        load_weights(model, {"weight": torch.zeros(5, 3), "bias": torch.zeros(7)}, "here")
    assert torch.equal(model.weight, before)


def test_unsharded_tensors_pass_through():
    x = torch.randn(3)
    assert whole(x) is x
    assert like(x, torch.zeros(3)) is x


def test_a_folder_without_recipe_is_no_run(tmp_path):
    with pytest.raises(CheckpointError, match="there is no run folder"):
        RunFolder(tmp_path / "nowhere").require()
    with pytest.raises(CheckpointError, match=r"it has no recipe.toml"):
        RunFolder(tmp_path).require()
    (tmp_path / "recipe.toml").write_text("")
    RunFolder(tmp_path).require()


def test_sweep_removes_drafts_only(tmp_path):
    run = RunFolder(tmp_path)
    store = run.data / ".train.safetensors.abc"
    store.mkdir(parents=True)
    (store / "source").write_bytes(b"half")
    kept = [tmp_path / name for name in (".recipe.toml.swp", ".gitignore", "last.safetensors", ".notes.123")]
    gone = [tmp_path / name for name in (".last.safetensors.71", ".report.json.5", ".metrics.jsonl.99")]
    for path in kept + gone:
        path.write_bytes(b"")
    run.sweep()
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in [*gone, store])


def test_versions_are_those_installed():
    found = versions()
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert json.loads(json.dumps(found)) == found
