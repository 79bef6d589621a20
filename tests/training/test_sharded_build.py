"""A sharded model starts with the bits of a whole one, and no rank holds more of it than its shards and one block.

Ranks are processes of their own, which import this file as a program does.
"""

import json
import random
import shutil
import sys
import weakref
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, like
from clearformer.models.build import build_deferred, build_model, model_class
from clearformer.recipe import Recipe
from clearformer.training.distributed import World, shard
from clearformer.training.precision import built_in

CPU = torch.device("cpu")
ATTENTION = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11}
KINDS: dict[str, dict[str, Any]] = {
    "gpt": {"vocab": 23, "n_layers": 3, **ATTENTION},
    "transformer": {"source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 2, "n_decoder_layers": 1, **ATTENTION},
    "t5": {"source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 1, "n_decoder_layers": 2, **ATTENTION},
    "classifier": {
        "base": {"kind": "bert", "vocab": 23, "n_layers": 2, **ATTENTION}, "pooling": "pooler", "n_classes": 3,
    },
    "rnn-lm": {"vocab": 23, "n_layers": 2, "d_model": 10, "embedding": "tied"},
    "seq2seq": {"source_vocab": 23, "target_vocab": 23, "attention": "additive", "d_model": 7, "d_embedding": 10},
    "resnet": {
        "stem": "3x3", "stem_width": 5, "block": "basic", "depths": (1, 2), "widths": (7, 11), "size": 11,
        "channels": 3, "n_classes": 5,
    },
}  # fmt: skip
LARGE = {"vocab": 101, "n_layers": 7, "d_model": 130, "d_ff": 520, "n_heads": 5, "max_length": 11}
SLACK = 2**17  # bytes: states of the random generator, tables of positions, biases


def config_of(kind: str, sizes: dict[str, Any]) -> Any:
    return model_class(kind).Config(**sizes)


class Live(TorchDispatchMode):
    """The most bytes that tensors made inside hold at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.peak = dict[int, int](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {local(t).untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)}
        for value in tree_iter(result):
            if isinstance(value, Tensor) and not value.is_meta:
                storage = local(value).untyped_storage()
                if (place := storage._cdata) not in given | {*self.sizes}:
                    self.sizes[place] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, place, None).atexit = False
        self.peak = max(self.peak, sum(self.sizes.values()))
        return result


def local(tensor: Tensor) -> Tensor:
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def bytes_of(model: nn.Module) -> dict[str, int]:
    """Of a sharded model: what this rank has of it, its largest part, and the whole."""
    blocks = [block for module in model.modules() if isinstance(module, nn.ModuleList) for block in module]
    inner = {id(p) for block in blocks for p in block.parameters()}
    sizes = [sum(p.nbytes for p in block.parameters()) for block in blocks]
    sizes.append(sum(p.nbytes for p in model.parameters() if id(p) not in inner))
    own = sum(local(p).untyped_storage().nbytes() for p in model.parameters())
    return {"own": own, "part": max(sizes), "whole": sum(p.nbytes for p in model.parameters())}


def is_same(sharded: nn.Module, plain: dict[str, Tensor]) -> bool:
    state = sharded.state_dict()
    rows = {name: like(tensor, state[name]) for name, tensor in plain.items()}
    same = all(torch.equal(local(state[name]), local(rows[name])) for name in rows)
    return state.keys() == plain.keys() and same


def build(world: World, folder: Path) -> Any:
    """Whether the shards are those of a plain build, and the most bytes that building took."""
    found: dict[str, Any] = {}
    for kind, sizes in KINDS.items():
        for precision in ("float32", "float64"):
            with built_in(precision):  # type: ignore[arg-type]
                torch.manual_seed(3)
                plain = build_model(config_of(kind, sizes))
                tables, after = dict(plain.named_buffers()), torch.rand(())
                torch.manual_seed(3)
                model, later = build_deferred(config_of(kind, sizes))
                same_draws = torch.equal(torch.rand(()), after)
            is_empty = all(parameter.is_meta for parameter in model.parameters())
            shard(model, CPU, later.fill)
            same_tables = all(torch.equal(table, tables[name]) for name, table in model.named_buffers())
            found[f"{kind} {precision}"] = [is_empty, same_draws, is_same(model, plain.state_dict()), same_tables]
    torch.manual_seed(3)
    with Live() as live:
        model, later = build_deferred(config_of("gpt", LARGE))
        shard(model, CPU, later.fill)
    found["bytes"] = {**bytes_of(model), "peak": live.peak}
    with Live() as live:
        model = build_model(config_of("gpt", LARGE))
        shard(model, CPU)
    found["bytes"]["before"] = live.peak
    return found


def fine_tune(world: World, folder: Path) -> Any:
    """Whether the shards of a model to be fine-tuned are those of one process, and the most bytes that it took."""
    found: dict[str, Any] = {}
    for method in METHODS:
        recipe = Recipe.read(folder / method / "recipe.toml")
        run = RunFolder(folder / f"{method}-sharded")
        with Live() as live:
            sharded = recipe.with_tables(train=recipe.train.changed(parallel="shard"))
            trainer, _ = fit.set_up(sharded, run, CPU, world)
        plain, _ = fit.set_up(recipe, RunFolder(folder / f"{method}-{world.rank}"), CPU, World())
        trained = [[name for name, p in one.model.named_parameters() if p.requires_grad] for one in (trainer, plain)]
        same = is_same(trainer.model, plain.model.state_dict())
        found[method] = {"same": same and trained[0] == trained[1], **bytes_of(trainer.model), "peak": live.peak}
    return found


def be_a_rank(rank: int, size: int, function: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{function}-{size}", rank=rank, world_size=size)
    result = globals()[function](World(rank, size), Path(folder))
    (Path(folder) / f"{function}-{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def run_ranks(folder: Path, size: int, function: str) -> list[Any]:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    program = f"import sys; sys.path[:0] = {paths}; import test_sharded_build, torch.multiprocessing as mp\n"
    called = f"test_sharded_build.be_a_rank, ({size}, {function!r}, {str(folder)!r}), nprocs={size}"
    program += f"if __name__ == '__main__': mp.spawn({called})"
    (folder / "ranks.py").write_text(program)
    done = run([sys.executable, str(folder / "ranks.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{function}-{rank}.json").read_text()) for rank in range(size)]


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_shards_are_those_of_a_plain_build(tmp_path: Path, size: int) -> None:
    for found in run_ranks(tmp_path, size, "build"):
        n_bytes = found.pop("bytes")
        assert len(found) == 2 * len(KINDS)
        assert all(all(facts) for facts in found.values()), found
        assert n_bytes["peak"] <= n_bytes["own"] + n_bytes["part"] + SLACK
        assert n_bytes["peak"] < 0.8 * n_bytes["whole"] < n_bytes["whole"] <= n_bytes["before"]


METHODS = ("full", "lora", "prefix")


@pytest.mark.slow
def test_a_base_is_read_by_rows(tmp_path: Path) -> None:
    """A GPT is trained for a step, and fine-tuned; the base stays in its file."""
    draw = random.Random(3)
    (tmp_path / "text.txt").write_text("\n".join(" ".join(draw.choices(["ab", "cd", "efg"], k=9)) for _ in range(99)))
    sizes = [f"model.{name}={value}" for name, value in LARGE.items() if name not in ("vocab", "max_length")]
    common = {"text": tmp_path / "text.txt", "device": "cpu", "steps": 1}
    clearformer.train(out=tmp_path / "base", settings=[*sizes, "text.kind=char", "model.max_length=16"], **common)
    for method in METHODS:
        clearformer.finetune(tmp_path / "base", out=tmp_path / method, method=method, **common)
        for name in ("last.safetensors", "model.safetensors"):
            (tmp_path / method / name).unlink()
        for how in ("sharded", "0", "1"):
            shutil.copytree(tmp_path / method, tmp_path / f"{method}-{how}")
    for found in run_ranks(tmp_path, 2, "fine_tune"):
        for method in METHODS:
            facts = found[method]
            assert facts["same"], method
            assert facts["peak"] <= facts["own"] + facts["part"] + trained_bytes(method, facts) + SLACK, (method, facts)


def trained_bytes(method: str, facts: dict[str, int]) -> int:
    """The average of the weights that are trained, which the trainer keeps."""
    return facts["own"] if method == "full" else facts["own"] // 10
