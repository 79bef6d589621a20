"""The sums of gradients begin inside the backward pass, and are those of sums after it.

Ranks are processes of their own, which import this file as a program does.
"""

import json
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from clearformer.errors import MachineError
from clearformer.training import gradient_sums
from clearformer.training.distributed import World
from clearformer.training.gradient_sums import GradientSums, buckets
from clearformer.training.recompute import recompute_blocks


def run_ranks(folder: Path, size: int, *functions: str) -> dict[str, list[Any]]:
    """Call functions of this file on each rank, and return what each of them returns, by rank."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    program = f"import sys; sys.path[:0] = {paths}; import test_gradient_sums, torch.multiprocessing as mp\n"
    called = f"test_gradient_sums.be_a_rank, ({size}, {functions}, {str(folder)!r}), nprocs={size}"
    program += f"if __name__ == '__main__': mp.spawn({called})"
    (folder / "ranks.py").write_text(program)
    done = run([sys.executable, str(folder / "ranks.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {function: [result[function] for result in results] for function in functions}


def be_a_rank(rank: int, size: int, functions: Sequence[str], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    gradient_sums.BUCKET = SMALL
    results = {function: globals()[function](World(rank, size), Path(folder)) for function in functions}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder, functions = tmp_path_factory.mktemp("ranks"), (sum_in_both_ways, begin_in_any_order, use_some, lack_memory)
    return run_ranks(folder, 2, *(function.__name__ for function in functions))


SHAPES = [(7, 11), (5,), (400, 3), (13,), (2, 3, 5, 7), (1,), (301,)]  # the third and the last are larger than a bucket
SMALL = 1200  # bytes of a bucket


def gradients(rank: int) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(rank)
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    parameters.append(nn.Parameter(torch.zeros(17, dtype=torch.float64)))
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=draw, dtype=p.dtype) * 10 ** torch.randn(p.shape, generator=draw).to(p)
    conv = parameters[4]
    conv.grad = torch.randn(SHAPES[4], generator=draw).to(memory_format=torch.channels_last)  # not contiguous
    return [*parameters, nn.Parameter(torch.zeros(3))]  # the last has no gradient


def sum_at_once(parameters: Sequence[nn.Parameter]) -> None:
    """One all-reduce per dtype, of a copy of all gradients."""
    grads = [p.grad for p in parameters if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in grads):
        some = [g for g in grads if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in some])
        dist.all_reduce(flat)
        for g, part in zip(some, flat.split([g.numel() for g in some])):
            g.copy_(part.view_as(g))


def sum_in_both_ways(world: World, folder: Path) -> Any:
    """Whether both ways agree, and what was exchanged."""
    expected, parameters, calls = gradients(world.rank), gradients(world.rank), list[Any]()
    sum_at_once(expected)
    places, all_reduce = {p.grad.data_ptr() for p in parameters if p.grad is not None}, dist.all_reduce

    def watched(tensor: Tensor, **options: Any) -> Any:
        calls.append({"bytes": tensor.nbytes, "in_place": tensor.data_ptr() in places, **options})
        return all_reduce(tensor, **options)

    dist.all_reduce = watched
    GradientSums(parameters, world).finish()
    dist.all_reduce = all_reduce
    same = all(a.grad is b.grad is None or torch.equal(a.grad, b.grad) for a, b in zip(expected, parameters))
    before = gradients(world.rank)
    changed = any(not torch.equal(a.grad, b.grad) for a, b in zip(before, parameters) if a.grad is not None)
    return {"same": same, "changed": changed, "calls": calls}


def test_gradients_are_summed_in_buckets_bit_for_bit(by_rank: dict[str, list[Any]]) -> None:
    """Two numbers have one sum. No bucket is larger than the limit, unless it is a gradient itself."""
    for facts in by_rank["sum_in_both_ways"]:
        assert facts["same"]
        assert facts["changed"]
        assert len(facts["calls"]) > 3
        assert all(call["async_op"] for call in facts["calls"])
        assert all(call["bytes"] <= SMALL for call in facts["calls"] if not call["in_place"])
        assert max(call["bytes"] for call in facts["calls"]) == 4 * 1200


def test_buckets_hold_every_gradient_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_sums, "BUCKET", SMALL)
    grads = [p.grad for p in gradients(0) if p.grad is not None]
    parts = list(buckets(grads))
    assert sorted(id(g) for part in parts for g in part) == sorted(map(id, grads))
    assert all(len({g.dtype for g in part}) == 1 for part in parts)
    assert all(len(part) == 1 or sum(g.nbytes for g in part) <= SMALL for part in parts)
    assert list(buckets([])) == []


# --- inside the backward pass


@contextmanager
def watched(sums: GradientSums) -> Iterator[list[str]]:
    """The events of a pass: "g2" is the gradient of parameter 2; "s1", which it causes and precedes it, a sum begins.

    The passes of a step end with "end", and its sums with "done".
    """
    events, begin_next, finish = list[str](), sums.begin_next, sums.finish
    parameters = [p for bucket in sums.buckets[::-1] for p in bucket.parameters[::-1]]
    handles = [
        p.register_post_accumulate_grad_hook(lambda _, i=i: events.append(f"g{i}"))  # type: ignore[misc]
        for i, p in enumerate(parameters)
    ]

    def begin() -> None:
        number = sums.buckets.index(sums.order[sums.n_begun])
        begin_next()
        events.append(f"s{number}")

    def end() -> None:
        events.append("end")
        finish()
        events.append("done")

    sums.begin_next, sums.finish = begin, end  # type: ignore[method-assign]
    try:
        yield events
    finally:
        del sums.begin_next, sums.finish
        for handle in handles:
            handle.remove()


def matrices(n: int = 4, width: int = 31) -> list[nn.Parameter]:
    """Each is a bucket of its own: 31² numbers of 4 bytes are more than SMALL."""
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(width, width, generator=draw) / width**0.5) for _ in range(n)]


def chain(weights: Sequence[Tensor], seed: int) -> Tensor:
    x = torch.randn(3, len(weights[0]), generator=torch.Generator().manual_seed(seed))
    for weight in weights:
        x = x @ weight
    return x.square().sum()


def expected_gradients(*losses: Callable[[Sequence[Tensor]], Tensor]) -> list[Tensor]:
    """The sum over ranks, computed in one process."""
    weights = matrices()
    for loss in losses:
        loss(weights).backward()  # type: ignore[no-untyped-call]
    return [weight.grad for weight in weights]  # type: ignore[misc]


def begin_in_any_order(world: World, folder: Path) -> Any:
    """The second rank uses the weights in the opposite order."""
    orders: list[Callable[[Sequence[Tensor]], Tensor]] = [lambda w: chain(w, 5), lambda w: chain(w[::-1], 7)]
    weights = matrices()
    sums = GradientSums(weights, world)
    with watched(sums) as events:
        sums.begin_last()
        orders[world.rank](weights).backward()  # type: ignore[no-untyped-call]
        sums.finish()
    same = [torch.equal(w.grad, g) for w, g in zip(weights, expected_gradients(*orders))]  # type: ignore[arg-type]
    return {"events": events, "same": all(same)}


def test_sums_begin_in_one_order_whichever_gradients_come_first(by_rank: dict[str, list[Any]]) -> None:
    natural, opposite = by_rank["begin_in_any_order"]
    assert natural["events"] == ["s0", "g3", "s1", "g2", "s2", "g1", "s3", "g0", "end", "done"]
    assert opposite["events"] == ["g0", "g1", "g2", "s0", "s1", "s2", "s3", "g3", "end", "done"]
    assert natural["same"]
    assert opposite["same"]


def use_some(world: World, folder: Path) -> Any:
    """Weight 0 is used by the first rank only, weight 3 by none, and from the third step on by both."""
    weights, found = matrices(), list[Any]()
    sums = GradientSums(weights, world)
    for step in range(4):
        used = [[0, 1, 2], [1, 2]] if step < 2 else [[0, 1, 2, 3], [1, 2, 3]]
        losses: list[Callable[[Sequence[Tensor]], Tensor]] = [
            lambda w, some=some, rank=rank: chain([w[i] for i in some], rank)  # type: ignore[misc]
            for rank, some in enumerate(used)
        ]
        with watched(sums) as events:
            sums.begin_last()
            losses[world.rank](weights).backward()  # type: ignore[no-untyped-call]
            sums.finish()
        same = [
            w.grad is g if g is None else torch.equal(w.grad, g)  # type: ignore[arg-type]
            for w, g in zip(weights, expected_gradients(*losses))
        ]
        found.append({"events": events, "same": all(same), "unused": [i for i in range(4) if weights[i].grad is None]})
        for weight in weights:
            weight.grad = None
    return found


def test_parameters_that_a_rank_does_not_use(by_rank: dict[str, list[Any]]) -> None:
    """Bucket 0, of weight 3, delays all others only once: then it is last, with bucket 3, of weight 0."""
    first, second = by_rank["use_some"]
    for step, (one, two) in enumerate(zip(first, second)):
        assert one["same"]
        assert two["same"]
        assert one["unused"] == two["unused"] == ([3] if step < 2 else [])
        assert [e for e in one["events"] if e[0] == "s"] == [e for e in two["events"] if e[0] == "s"]
    assert first[0]["events"] == ["g2", "g1", "g0", "end", "s0", "s1", "s2", "s3", "done"]
    assert first[1]["events"] == ["s1", "g2", "s2", "g1", "g0", "end", "s0", "s3", "done"]
    assert first[2]["events"] == ["g3", "s1", "g2", "s2", "s0", "g1", "s3", "g0", "end", "done"]
    assert second[3]["events"] == ["s0", "g3", "s1", "g2", "s2", "g1", "end", "s3", "done"]


class Live(TorchDispatchMode):
    """The most bytes that tensors made inside hold at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.peak = dict[int, int](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)}
        for value in tree_iter(result):
            if isinstance(value, Tensor) and (place := value.untyped_storage()._cdata) not in given | {*self.sizes}:
                self.sizes[place] = value.untyped_storage().nbytes()
                weakref.finalize(value.untyped_storage(), self.sizes.pop, place, None).atexit = False
        self.peak = max(self.peak, sum(self.sizes.values()))
        return result


def lack_memory(world: World, folder: Path) -> Any:
    """The second rank fails three times in the middle of its last pass; the second time, a sum itself lacks memory."""
    fails = iter([2, 1] if world.rank == 1 else [])
    fails_at = next(fails, None)
    weights, width = matrices(6, 127), 127
    sums = GradientSums(weights, world)

    def fail(number: int) -> Callable[[Tensor], None]:
        def hook(_: Tensor) -> None:
            if sums.is_last and number == fails_at:
                raise MemoryError

        return hook

    for number, weight in enumerate(weights):
        weight.register_post_accumulate_grad_hook(fail(number))
    begun, plain_sum = list[int](), gradient_sums.Sum

    def short_sum(tensors: list[Tensor]) -> Any:
        if begun == [4]:
            raise MemoryError
        return plain_sum(tensors)

    gradient_sums.Sum = short_sum  # type: ignore[assignment,misc]
    with watched(sums) as events, Live() as live:
        while True:
            try:
                chain(weights, world.rank).backward()  # type: ignore[no-untyped-call]
                sums.begin_last()
                chain(weights, world.rank + 2).backward()  # type: ignore[no-untyped-call]
                break
            except MemoryError:
                begun.append(sums.n_begun)
                fails_at = None if len(begun) == 1 else next(fails, None)
                for weight in weights:
                    weight.grad = None
                sums.start_again()
        sums.finish()
    gradient_sums.Sum = plain_sum  # type: ignore[misc]
    expected = matrices(6, 127)
    for seed in (0, 2, 1, 3):
        chain(expected, seed).backward()  # type: ignore[no-untyped-call]
    close = [torch.allclose(w.grad, e.grad, rtol=1e-4, atol=1e-4) for w, e in zip(weights, expected)]  # type: ignore[arg-type]
    sent = [event for event in events if event[0] == "s"]
    return {"close": all(close), "begun": begun, "sent": sent, "peak": live.peak / (4 * width * width)}


def test_a_rank_that_starts_again_sums_nothing_twice_and_holds_gradients_once(by_rank: dict[str, list[Any]]) -> None:
    """Six gradients of one matrix each; the pass itself needs two more at a time, and vectors."""
    first, second = by_rank["lack_memory"]
    assert first["begun"] == []
    assert second["begun"] == [4, 4, 5]
    for facts in (first, second):
        assert facts["close"]
        assert facts["sent"] == ["s0", "s1", "s2", "s3", "s4", "s5"]
        assert 6 <= facts["peak"] < 8.5


class Failed:
    """What a collective returns that has failed on the way."""

    def __init__(self, message: str) -> None:
        self.message = message

    def wait(self) -> None:
        raise RuntimeError(self.message)


@pytest.mark.parametrize(("message", "error"), [("std::bad_alloc", MachineError), ("Connection closed", RuntimeError)])
def test_a_sum_that_failed_is_not_repeated(
    message: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step would start again for lack of memory, and take this sum for complete."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, async_op: Failed(message))
    monkeypatch.setattr(gradient_sums, "AT_ONCE", 1)
    monkeypatch.setattr(gradient_sums, "BUCKET", SMALL)
    weights = matrices()
    sums = GradientSums(weights, World(0, 2))
    sums.begin_last()
    with pytest.raises(error):
        chain(weights, 0).backward()  # type: ignore[no-untyped-call]


# --- in training


class Steps:
    """Four micro-batches a step, the last one smaller."""

    group = 4

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def count(self, epoch: int) -> int:
        return 4

    def load(self, epoch: int, position: int, world: World) -> Any:
        from test_split import batch_for

        batches = [batch_for(self.kind, n, 40 * epoch + 10 * position + n) for n in (13, 13, 11, 11)]
        if self.kind == "rnn-lm":
            for block, batch in enumerate(batches):
                vars(batch)["block"] = block
        return world.select(batches), sum(batch.n_tokens for batch in batches)


def weights_after(trainer: Any, kind: str) -> dict[str, Tensor]:
    trainer.train(Steps(kind))
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def is_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def difference(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def train(world: World, folder: Path) -> Any:
    """Trainings with sums inside and after the backward pass, and with too little memory on the second rank."""
    from test_split import trainer_for

    facts: dict[str, Any] = {}
    for kind in ("transformer", "gpt", "bert", "rnn-lm"):
        after = trainer_for(kind, folder / f"{kind}-after", world=world)
        after.splitter.begin_last = lambda: None
        inside = trainer_for(kind, folder / f"{kind}-inside", world=world)
        plain = weights_after(after, kind)
        with watched(inside.sums) as events:
            trained = weights_after(inside, kind)
        short = trainer_for(kind, folder / f"{kind}-short", 5 if world.rank == 1 else 10**6, world=world)
        begun, start_again = list[int](), short.start_again

        def noted(short: Any = short, begun: list[int] = begun, start_again: Any = start_again) -> None:
            begun.append(short.sums.n_begun)
            start_again()

        short.splitter.start_again = noted
        limited = weights_after(short, kind)
        facts[kind] = {
            "events": events,
            "n_buckets": len(inside.sums.buckets),
            "n_parameters": len(inside.parameters),
            "same": is_same(plain, trained),
            "difference": difference(plain, limited),
            "begun": begun,
        }
    recomputed = trainer_for("gpt", folder / "recomputed", world=world)
    recompute_blocks(recomputed.model)
    facts["recomputed"] = is_same(weights_after(recomputed, "gpt"), trained_gpt(world, folder))
    shaken = trainer_for("gpt", folder / "shaken", 5 if world.rank == 1 else 10**6, world=world, dropout=0.3)
    mine = weights_after(shaken, "gpt")
    facts["dropout"] = [float(tensor.double().sum()) for tensor in mine.values()]
    return facts


def trained_gpt(world: World, folder: Path) -> dict[str, Tensor]:
    from test_split import trainer_for

    return weights_after(trainer_for("gpt", folder / "again", world=world), "gpt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return run_ranks(tmp_path_factory.mktemp("ranks"), 2, "train")["train"]


KINDS = ("transformer", "gpt", "bert", "rnn-lm")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_sums_after_the_pass(trained: list[Any], kind: str) -> None:
    """Bit for bit; and the sums of a step begin once, in the last of its two passes, before that has ended."""
    for facts in (rank[kind] for rank in trained):
        assert facts["same"]
        steps = " ".join(facts["events"]).split(" done")
        assert steps.pop() == ""
        assert len(steps) == 6
        for step in steps:
            events = step.split()
            sums, gradients = ([event for event in events if event[0] == kind] for kind in "sg")
            n = facts["n_parameters"]
            assert sorted(sums) == sorted(f"s{i}" for i in range(facts["n_buckets"]))
            assert sorted(gradients[:n]) == sorted(gradients[n:])
            assert gradients[:n] == events[:n]  # the first pass
            assert events.index(sums[0]) < events.index(gradients[-1], n) < events.index("end")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_weights_with_too_little_memory_on_one_rank(trained: list[Any], kind: str) -> None:
    first, second = (rank[kind] for rank in trained)
    assert first["begun"] == []
    assert second["begun"]
    assert max(first["difference"], second["difference"]) < 1e-10


@pytest.mark.slow
def test_weights_with_recomputation(trained: list[Any]) -> None:
    assert all(rank["recomputed"] for rank in trained)


@pytest.mark.slow
def test_ranks_stay_equal_if_one_draws_dropout_again(trained: list[Any]) -> None:
    assert trained[0]["dropout"] == trained[1]["dropout"]


def sum_on_four(world: World, folder: Path) -> Any:
    """Bucket by bucket, the same tensors are summed: inside the pass, and after it."""
    found = []
    for is_inside in (True, False):
        weights = matrices(5)
        sums = GradientSums(weights, world)
        if is_inside:
            sums.begin_last()
        chain(weights, world.rank).backward()  # type: ignore[no-untyped-call]
        sums.finish()
        found.append([weight.grad for weight in weights])
    return all(torch.equal(a, b) for a, b in zip(*found))  # type: ignore[arg-type]


@pytest.mark.slow
def test_four_ranks_have_the_same_bits_inside_and_after_the_pass(tmp_path: Path) -> None:
    assert run_ranks(tmp_path, 4, "sum_on_four") == {"sum_on_four": [True] * 4}
