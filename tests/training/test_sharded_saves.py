"""A sharded run saves in parts, and is opened on any number of ranks, or as one model, bit for bit.

Run as a program, this file is one rank of the tests at its end: `clearformer` with an observer.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import clearformer
from clearformer.checkpoint import RunFolder, load_tensors, save_tensors, write_json
from clearformer.errors import CheckpointError
from clearformer.training.journal import read_metrics
from clearformer.training.parts import Piece, load_saved, merge, opened, write_part

SHAPES = {"blocks.0.weight": (7, 5), "blocks.0.bias": (7,), "head": (3, 2, 5), "step": ()}
DTYPES = {"blocks.0.weight": torch.bfloat16, "blocks.0.bias": torch.float64, "head": torch.int64, "step": torch.float32}


def tensors() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randint(-9, 99, SHAPES[name], generator=draw).to(DTYPES[name]) for name in SHAPES}


def write(folder: Path, number: int = 4, size: int = 3, values: dict[str, torch.Tensor] | None = None) -> RunFolder:
    """What `size` ranks write of the tensors; with 4 of them, the last has no rows of some."""
    run, values, names = RunFolder(folder), values or tensors(), []
    for rank in range(size):
        pieces = {}
        for name, tensor in values.items():
            if tensor.dim() == 0:
                pieces |= {name: Piece(tensor)} if rank == 0 else {}
                continue
            most = -(-len(tensor) // size)
            if len(rows := tensor[rank * most : (rank + 1) * most]):
                pieces[name] = Piece(rows, rank * most)
        names.append(f"last.save-{number}.rank-{rank}-of-{size}.safetensors")
        write_part(folder / names[-1], pieces)
    shapes = {name: list(tensor.shape) for name, tensor in values.items()}
    write_json(run.index, {"save": number, "parts": names, "shapes": shapes, "facts": {"seed": 7}})
    return run


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_parts_are_the_tensors_bit_for_bit(tmp_path, size):
    run = write(tmp_path, size=size)
    assert run.checkpoint == run.index
    found, facts = load_saved(run.index)
    assert facts == {"seed": 7}
    assert found.keys() == SHAPES.keys()
    for name, tensor in tensors().items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("others", [1, 2, 4, 5])
def test_other_ranks_read_only_their_rows(tmp_path, others):
    with opened(write(tmp_path).index) as (saved, _):
        for name, tensor in tensors().items():
            if tensor.dim():
                most = -(-len(tensor) // others)
                for start in range(0, others * most, most):
                    rows = saved[name].read(min(start, len(tensor)), min(start + most, len(tensor)))
                    assert rows.dtype == tensor.dtype
                    assert torch.equal(rows, tensor[start : start + most])


def test_merged_parts_are_the_file_of_the_library(tmp_path):
    run = write(tmp_path)
    merge(sorted(tmp_path.glob("last.save-*")), tmp_path / "merged.safetensors", {"seed": 7})
    save_tensors(tmp_path / "whole.safetensors", tensors(), {"seed": 7})
    for path in (tmp_path / "merged.safetensors", run.index):
        (a, facts_a), (b, facts_b) = load_saved(path), load_tensors(tmp_path / "whole.safetensors")
        assert facts_a == facts_b
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert load_tensors(tmp_path / "merged.safetensors")[0].keys() == SHAPES.keys()  # the library reads it too


def test_an_ordinary_file_is_opened_in_the_same_way(tmp_path):
    save_tensors(tmp_path / "last.safetensors", tensors(), {"seed": 7})
    found, facts = load_saved(RunFolder(tmp_path).checkpoint)
    assert facts == {"seed": 7}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors().items())


def test_only_parts_of_the_index_stay(tmp_path):
    """What a killed process has written of the next save, and drafts, are removed; checksums stay right."""
    run = write(tmp_path)
    run.recipe.touch()
    for name in ("last.save-5.rank-0-of-3.safetensors", ".last.save-5.rank-1-of-3.safetensors.71"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".model.save-6.rank-1-of-3.safetensors.6").write_bytes(b"half")
    clearformer.verify(tmp_path, accept=True)
    run.sweep()
    assert len([*tmp_path.glob("*save-*")]) == 3
    assert not [*tmp_path.glob(".*")]
    assert clearformer.verify(tmp_path)["faults"] == []
    load_saved(run.index)
    (tmp_path / "last.save-4.rank-1-of-3.safetensors").write_bytes(b"flipped")
    assert "rank-1-of-3" in clearformer.verify(tmp_path)["faults"][0]
    run.discard_parts()
    assert not [*tmp_path.glob("*save-*"), *tmp_path.glob("*index*")]
    assert clearformer.verify(tmp_path)["faults"] == []


def change(index: dict[str, Any], folder: Path, how: str) -> None:
    first, second, third = index["parts"]
    match how:
        case "a part is missing":
            (folder / second).unlink()
        case "a part is cut off":
            (folder / second).write_bytes((folder / second).read_bytes()[:-1])
        case "a part is of another save":
            values = {name: tensor[:-1] if tensor.dim() else tensor for name, tensor in tensors().items()}
            write(folder, 9, 3, values)
            os.replace(folder / second.replace("save-4", "save-9"), folder / second)
        case "a part is listed twice":
            index["parts"] = [first, second, second, third]
        case "a part is not listed":
            index["parts"] = [first, third]
        case "a part is outside":
            index["parts"] = [first, second, "../" + third]
        case "a shape is larger":
            index["shapes"]["head"] = [2**40, 2, 5]
        case "a tensor has no part":
            index["shapes"]["more"] = [3]
        case "no shapes":
            del index["shapes"]
        case "strange shapes":
            index["shapes"] = {"head": [True, {}]}
        case "no parts":
            index["parts"] = []
        case "a start is a text":
            values = tensors()
            write_part(folder / first, {name: Piece(tensor, "0") for name, tensor in values.items()})  # type: ignore[arg-type]
        case "not an object":
            index.clear()


DAMAGES = [
    *("a part is missing", "a part is cut off", "a part is of another save", "a part is listed twice"),
    *("a part is not listed", "a part is outside", "a shape is larger", "a tensor has no part", "no shapes"),
    *("strange shapes", "no parts", "a start is a text", "not an object"),
]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_one_sentence(tmp_path, how):
    run = write(tmp_path)
    index = json.loads(run.index.read_text())
    change(index, tmp_path, how)
    write_json(run.index, index)
    with pytest.raises(CheckpointError) as error:
        load_saved(run.index)
    assert error.value.hint
    assert str(tmp_path) in error.value.message
    assert "\n" not in error.value.message


# --- several processes

SETTINGS = """
data.train.path = "{folder}/pairs.tsv"
data.test.path = "{folder}/test.tsv"
text = {{kind = "char"}}
model = {{n_encoder_layers = 2, n_decoder_layers = 2, d_model = 24, d_ff = 48, n_heads = 2, dropout = 0}}
schedule.warmup = 4
evaluate.max_validation = 4
decode.beam = 2
[train]
steps = 12
tokens = 96
accumulation = 4
log_every = 1
validate_every = 4
save_every = 3
precision = "float64"
metric = "loss"
parallel = "shard"
"""
GATHERED = "gathered.json"


def ranks(folder: Path, out: str, size: int, *more: str, device: str = "cpu", **variables: str) -> int:
    """Train in several processes, started by torchrun; their messages go to OUT.log. Returns the exit code."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    given = ["--resume"] if "--resume" in more else [str(folder / "recipe.toml")]
    command = ["train", *given, "--out", str(folder / out), "--device", device]
    command += [word for word in more if word != "--resume"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    with open(folder / f"{out}.log", "a") as log:
        return subprocess.run(
            [*launcher, __file__, *command], env=variables, stdout=log, stderr=log, timeout=240
        ).returncode


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in read_metrics(folder / "metrics.jsonl") if row["kind"] == "train"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, folder = random.Random(3), tmp_path_factory.mktemp("sharded")
    lines = [" ".join(draw.choices(["ab", "cd", "efg", "hi"], k=draw.randint(2, 6))) for _ in range(300)]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    (folder / "test.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines[:5]))
    (folder / "recipe.toml").write_text(SETTINGS.format(folder=folder))
    return folder


@pytest.fixture(scope="module")
def peace(folder: Path) -> Path:
    """A run on two ranks, with an observer."""
    assert ranks(folder, "peace", 2, OBSERVED=str(folder)) == 0, (folder / "peace.log").read_text()
    return folder / "peace"


@pytest.fixture(scope="module")
def half(folder: Path) -> Path:
    """The same run, stopped after step 6, of 12."""
    assert ranks(folder, "half", 2, "--set", "train.pause=6") == 0, (folder / "half.log").read_text()
    return folder / "half"


@pytest.mark.slow
def test_the_folder_of_a_sharded_run(peace):
    run = RunFolder(peace)
    index = json.loads(run.index.read_text())
    assert sorted(path.name for path in peace.glob("last*")) == sorted([run.index.name, *index["parts"]])
    assert len(index["parts"]) == 2
    assert not [*peace.glob(".*")]
    assert clearformer.verify(peace)["faults"] == []
    report = json.loads(run.report.read_text())
    alone = clearformer.evaluate(peace, pairs=peace.parent / "test.tsv", device="cpu")
    assert {name: alone[name] for name in ("bleu", "chrf")} == {name: report["test"][name] for name in ("bleu", "chrf")}


@pytest.mark.slow
def test_one_model_is_the_shards_joined(peace):
    """The best weights are the average of the last step: both files have the same bits."""
    report = json.loads((peace / "report.json").read_text())
    assert report["best_step"] == report["steps"] == 12
    best, last = load_tensors(peace / "model.safetensors")[0], load_saved(RunFolder(peace).index)[0]
    parts = [load_tensors(path)[0] for path in sorted(peace.glob("last.save-*"))]
    names = [name for name in best if f"average.{name}" in last]
    assert len(names) == len(best) > 20
    for name in names:
        joined = torch.cat([part[f"average.{name}"] for part in parts if f"average.{name}" in part])
        assert torch.equal(best[name], joined)
        assert torch.equal(last[f"average.{name}"], joined)


@pytest.mark.slow
def test_no_rank_gathers_the_model(peace):
    """In training, validation with beam search, saving and the test: never more than the embeddings and two blocks."""
    for rank in (0, 1):
        seen = json.loads((peace.parent / f"{rank}-{GATHERED}").read_text())
        assert seen["calls"] > 1000
        assert seen["peak"] <= seen["rest"] + 2 * seen["largest block"] < seen["model"] * 0.8
        assert seen["largest full tensor"] <= seen["largest tensor"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 1, 4])
def test_it_continues_on_any_number_of_ranks(folder, peace, half, size):
    out = folder / f"half-{size}"
    shutil.copytree(half, out)
    assert ranks(folder, out.name, size, "--resume") == 0, (folder / f"{out.name}.log").read_text()
    assert len(losses(out)) == len(losses(peace)) == 12
    assert max(abs(a - b) for a, b in zip(losses(out), losses(peace))) < 1e-10
    if size == 2:
        for path in ("checkpoint", "model"):
            one, two = (load_saved(getattr(RunFolder(run), path))[0] for run in (peace, out))
            assert one.keys() == two.keys()
            assert all(torch.equal(one[name], two[name]) for name in one)
    assert RunFolder(out).checkpoint.name == ("last.safetensors" if size == 1 else "last.safetensors.index.json")
    assert len([*out.glob("last*")]) == (1 if size == 1 else size + 1)
    assert clearformer.verify(out)["faults"] == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_two_ranks_share_a_gpu(folder):
    """Sharded over two processes on one GPU, stopped, and opened by one process, which goes on to the same losses."""
    shared = {"device": "cuda", "CUDA_VISIBLE_DEVICES": "0"}
    assert ranks(folder, "shared", 2, **shared) == 0, (folder / "shared.log").read_text()
    assert "2 processes share 1 GPU" in (folder / "shared.log").read_text()
    assert ranks(folder, "shared-half", 2, "--set", "train.pause=6", **shared) == 0
    half = folder / "shared-half"
    parts = [load_tensors(path)[0] for path in sorted(half.glob("last.save-*"))]
    assert len(parts) == 2
    for name, tensor in load_saved(RunFolder(half).index)[0].items():
        assert torch.equal(
            tensor, torch.cat([part[name] for part in parts if name in part]) if tensor.dim() else tensor
        )
    assert ranks(folder, half.name, 1, "--resume", **shared) == 0, (folder / "shared-half.log").read_text()
    assert RunFolder(half).checkpoint.name == "last.safetensors"
    assert len(losses(half)) == len(losses(folder / "shared")) == 12
    assert max(abs(a - b) for a, b in zip(losses(half), losses(folder / "shared"))) < 1e-10
    one, two = (load_saved(RunFolder(folder / run).checkpoint)[0] for run in ("shared", half.name))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-9, atol=1e-10)


MOMENTS = {
    "before its second part": "os.rename last.save-3.rank-0-of-2.safetensors 1",
    "between parts and index": "os.rename last.safetensors.index.json 2",
    "before the parts of before are removed": "os.remove last.save-1.rank-0-of-2.safetensors 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_leaves_a_whole_checkpoint(folder, peace, moment):
    out = folder / moment.replace(" ", "-")
    assert ranks(folder, out.name, 2, KILLED=MOMENTS[moment]) != 0
    assert "KILLED" in (folder / f"{out.name}.log").read_text()
    _, facts = load_saved(RunFolder(out).checkpoint)
    assert facts["progress"]["step"] == (6 if "removed" in moment else 3)
    assert clearformer.verify(out)["faults"] == []
    assert ranks(folder, out.name, 2, "--resume") == 0, (folder / f"{out.name}.log").read_text()
    one, two = (load_saved(RunFolder(run).checkpoint)[0] for run in (peace, out))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert clearformer.verify(out)["faults"] == []
    assert not [*out.glob(".*")]


@pytest.mark.slow
def test_a_signal_to_one_rank_ends_the_validation_of_all(folder, peace):
    """The second rank notices it in the middle of a search, where the others wait for its weights."""
    assert ranks(folder, "signal", 2, SIGNALLED="250") != 0
    assert "interrupted: saved at step 4" in (folder / "signal.log").read_text()
    _, facts = load_saved(RunFolder(folder / "signal").checkpoint)
    assert (facts["progress"]["step"], facts["progress"]["judged"]) == (4, 0)
    assert ranks(folder, "signal", 2, "--resume") == 0
    one, two = (load_saved(RunFolder(run).checkpoint)[0] for run in (peace, folder / "signal"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_a_rank_that_cannot_write_is_one_sentence(folder):
    """All ranks say it (test_saving.py), but torchrun ends those that have not yet when the first one fails."""
    assert ranks(folder, "full", 2, LIMITED="20000") != 0
    log = (folder / "full.log").read_text()
    assert "last.save-1.rank-1-of-2.safetensors cannot be written: the disk is full" in log
    assert "clearformer/training" not in log  # no traceback but torchrun's
    assert not RunFolder(folder / "full").checkpoint.exists()
    assert not [*(folder / "full").glob("*save-*")]


def watch_gathered(folder: str) -> None:
    """Note the bytes of parameters that this process holds whole, at every call of a module, and write the largest."""
    import atexit

    from torch.distributed.tensor import DTensor
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

    from clearformer import fit

    seen: dict[str, int] = {"calls": 0, "peak": 0, "largest full tensor": 0}
    models: list[torch.nn.Module] = []
    shard, full_tensor = fit.shard, DTensor.full_tensor

    def n_bytes(parameters: Any) -> int:
        return sum(p.numel() * p.element_size() for p in parameters)

    def watch(module: Any, *_: Any) -> None:
        seen["calls"] += 1
        for model in models:
            whole = n_bytes(p for p in model.parameters() if not isinstance(p, DTensor))
            seen["peak"] = max(seen["peak"], whole)

    def watched_shard(model: torch.nn.Module, *rest: Any) -> None:
        blocks = [block for m in model.modules() if isinstance(m, torch.nn.ModuleList) for block in m]
        sizes = [n_bytes(block.parameters()) for block in blocks]
        seen.update(model=n_bytes(model.parameters()), rest=n_bytes(model.parameters()) - sum(sizes))
        seen["largest tensor"] = max(n_bytes([p]) for p in model.parameters())
        seen["largest block"] = max(sizes)
        shard(model, *rest)
        models.append(model)

    def watched_full(self: Any, **options: Any) -> torch.Tensor:
        tensor = full_tensor(self, **options)
        seen["largest full tensor"] = max(seen["largest full tensor"], n_bytes([tensor]))
        return tensor

    fit.shard, DTensor.full_tensor = watched_shard, watched_full  # type: ignore[assignment, method-assign]
    register_module_forward_pre_hook(watch)
    register_module_forward_hook(watch)
    atexit.register(lambda: Path(folder, f"{os.environ['RANK']}-{GATHERED}").write_text(json.dumps(seen)))


def signal_at(n: int) -> None:
    """Send a signal to this process, if it is the second rank, at the n-th call of a module in a validation."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    left = [n]

    def see(module: Any, _: Any) -> None:
        if not module.training:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGTERM)

    if os.environ["RANK"] == "1":
        register_module_forward_pre_hook(see)


def limit_files(n_bytes: int) -> None:
    """Let this process, if it is the second rank, write files of this size at most, as on a full disk."""
    import resource

    if os.environ["RANK"] == "1":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def end_at(moment: str) -> None:
    """Kill this process, if it is the first rank, before the n-th operation of a kind on a file."""
    event, name, n = moment.split(" ")
    left = [int(n)]

    def see(what: str, arguments: tuple[Any, ...]) -> None:
        if what == event and any(
            Path(os.fsdecode(path)).name == name for path in arguments if isinstance(path, str | Path)
        ):
            left[0] -= 1
            if left[0] == 0:
                os.write(2, b"KILLED\n")
                os.kill(os.getpid(), signal.SIGKILL)

    if os.environ["RANK"] == "0":
        sys.addaudithook(see)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "OBSERVED" in os.environ:
        watch_gathered(os.environ["OBSERVED"])
    if "KILLED" in os.environ:
        end_at(os.environ["KILLED"])
    if "SIGNALLED" in os.environ:
        signal_at(int(os.environ["SIGNALLED"]))
    if "LIMITED" in os.environ:
        limit_files(int(os.environ["LIMITED"]))
    from clearformer.cli import app

    app()
