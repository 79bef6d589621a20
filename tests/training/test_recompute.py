"""Recomputed activations: the same bits, fewer of them stored, with every way to train."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import finalize

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, TextBatch
from clearformer.models import MODELS
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.objectives.cross_entropy import token_loss
from clearformer.tasks import TASKS
from clearformer.training.compiling import How, compiled
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.journal import read_metrics
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.recompute import CHUNK, Recomputed, in_chunks, recompute_blocks
from clearformer.training.schedules import ScheduleConfig
from clearformer.tuning.adapters import add_lora
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import PrefixConfig, add_prefix

CPU = torch.device("cpu")
SIZES = {"d_model": 12, "d_ff": 17, "n_heads": 3, "max_length": 101, "dropout": 0.3, "attention_dropout": 0.2}
N_BLOCKS = {"gpt": 3, "bert": 2, "transformer": 4, "t5": 4, "vit": 2, "seq2seq": 1, "rnn-lm": 0, "resnet": 0}


def case(name: str, length: int = 7, **more: Any) -> tuple[Any, Any, Any]:
    """A model with dropout, its objective and a batch."""
    torch.manual_seed(0)
    tokens = torch.randint(3, 23, (2, length))
    pairs = Batch(tokens, torch.arange(length) < torch.tensor([[length], [3]]), tokens.flip(0), tokens)
    both = {**SIZES, "source_vocab": 23, "target_vocab": 23, "n_encoder_layers": 2, "n_decoder_layers": 2}
    recurrent = {"source_vocab": 23, "target_vocab": 23, "d_model": 7, "d_embedding": 10, "attention": "additive"}
    images = ImageBatch(torch.randn(5, 3, 12, 12), torch.tensor([0, 2, 1, 1, 0]))
    sizes, batch = {
        "gpt": ({**SIZES, "vocab": 23, "n_layers": 3}, TextBatch(tokens, tokens.flip(1))),
        "bert": (
            {**SIZES, "vocab": 23, "n_layers": 2},
            EncoderBatch(
                tokens, tokens > 3, labels=tokens.where(tokens % 3 == 0, IGNORE), classes=torch.tensor([0, 1])
            ),
        ),
        "transformer": (both, pairs),
        "t5": ({**both, "d_head": 4}, pairs),
        "vit": ({"size": 12, "patch": 4, "n_layers": 2, "d_model": 12, "n_heads": 3, "dropout": 0.3}, images),
        "seq2seq": ({**recurrent, "dropout": 0.3}, pairs),
        "rnn-lm": ({"vocab": 23, "d_model": 10, "dropout": 0.3}, TextBatch(tokens, tokens.flip(1))),
        "resnet": ({"stem": "3x3", "stem_width": 5, "depths": (1,), "widths": (8,), "size": 12}, images),
    }[name]
    kind = MODELS.resolve(name)
    model = kind(kind.Config(**{**sizes, **more}))
    objective = TASKS.resolve(model.task).objective
    return model, objective(objective.Config()), batch


def loss_and_gradients(model: nn.Module, objective: Any, batch: Any, seed: int = 5) -> list[Tensor]:
    """The loss, the gradients, and the state of the generator afterwards: what follows draws the same numbers."""
    torch.manual_seed(seed)
    total, _ = objective(model, batch)
    total.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return [total.detach(), *gradients, torch.get_rng_state()]


def assert_same_bits(one: list[Tensor], two: list[Tensor]) -> None:
    assert len(one) == len(two) > 2
    assert all(torch.equal(a, b) for a, b in zip(one, two))


@pytest.mark.parametrize("name", N_BLOCKS)
def test_loss_gradients_and_draws_have_the_same_bits(name: str) -> None:
    model, objective, batch = case(name)
    plain = loss_and_gradients(model, objective, batch)
    names = list(model.state_dict())
    assert recompute_blocks(model) == N_BLOCKS[name]
    assert_same_bits(plain, loss_and_gradients(model, in_chunks(objective, "blocks"), batch))
    assert list(model.state_dict()) == names


def test_the_comparison_can_fail() -> None:
    """Another dropout mask in the backward pass is what a forgotten generator would give."""
    model, objective, batch = case("gpt")
    one, two = (loss_and_gradients(model, objective, batch, seed) for seed in (5, 6))
    with pytest.raises(AssertionError):
        assert_same_bits(one, two)


@pytest.mark.parametrize("tune", [add_lora, add_prefix])
def test_adapters_and_prefixes_learn_the_same(tune: Callable[..., Any]) -> None:
    model, objective, batch = case("gpt")
    torch.manual_seed(1)
    tune(model, LoraConfig(rank=2, dropout=0.2) if tune is add_lora else PrefixConfig(length=3, d_hidden=5))
    plain = loss_and_gradients(model, objective, batch)
    recompute_blocks(model)
    assert_same_bits(plain, loss_and_gradients(model, in_chunks(objective, "blocks"), batch))


def test_autocast_is_the_same_both_times() -> None:
    model, objective, batch = case("gpt")

    def run(objective: Any) -> list[Tensor]:
        def lower(*inputs: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return objective(*inputs)

        return loss_and_gradients(model, lower, batch)

    plain = run(objective)
    recompute_blocks(model)
    assert_same_bits(plain, run(in_chunks(objective, "blocks")))


def stored(model: nn.Module, objective: Any, batch: Any) -> int:
    """Bytes of the distinct tensors that the forward pass leaves for the backward pass, without the parameters."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        total, _ = objective(model, batch)
    assert total.requires_grad
    known = {p.untyped_storage().data_ptr() for p in model.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in known)


def test_a_block_more_stores_only_its_input() -> None:
    """B·T·D floats, against at least ten times as many without recomputation."""
    B, T, D = 2, 97, 12
    extra = {}
    for recompute in (False, True):
        sizes = []
        for n_layers in (2, 5):
            model, objective, batch = case("gpt", T, n_layers=n_layers)
            if recompute:
                recompute_blocks(model)
            sizes.append(stored(model, objective, batch))
        extra[recompute] = (sizes[1] - sizes[0]) / 3
    assert extra[True] == 4 * B * T * D
    assert extra[False] > 10 * 4 * B * T * D


class Peak(TorchDispatchMode):
    """The largest output of an operation, in elements: logits that exist only for a moment count as well."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for tensor in outputs if isinstance(outputs, tuple | list) else [outputs]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return outputs


def test_logits_exist_for_one_chunk_at_a_time() -> None:
    """In the forward and the backward pass; V is so large that every logit tensor exceeds all others."""
    N, D, V, chunk = 53, 5, 997, 11
    torch.manual_seed(0)
    head, labels = nn.Linear(D, V), torch.randint(V, (1, N))
    for size, expected in ((None, N * V), (chunk, chunk * V)):
        hidden = torch.randn(1, N, D, requires_grad=True)
        with Peak() as peak:
            token_loss(head, hidden, labels, 0.0, size).backward()
        assert peak.largest == expected


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_chunks_sum_to_the_whole(epsilon: float) -> None:
    """In float64, with ignored labels and a last chunk of another size."""
    torch.manual_seed(0)
    head = nn.Linear(5, 13, dtype=torch.float64)
    hidden = torch.randn(3, 7, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(13, (3, 7))
    labels[1, 4:] = IGNORE
    results = []
    for chunk in (None, 4, 21, 100):
        total = token_loss(head, hidden, labels, epsilon, chunk)
        results.append([total, *torch.autograd.grad(total, [hidden, *head.parameters()])])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-12, atol=1e-13)
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[2]))  # one chunk: the same product


def test_gradients_of_chunks_are_summed_in_float32() -> None:
    """64 gradients of 1 and one of 2⁹: in bfloat16, with 8 bits, 2⁹ + 1 is 2⁹."""
    head = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(head.weight)
    total = 2.0**9 + 64

    class Exact(nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            """Two logits, of which the label's has the gradient −½ · 2 · hidden: minus the input of the layer."""
            y = head(hidden)
            return torch.cat([y, -y], dim=-1)

    hidden = torch.ones(1, 65, 1)
    hidden[0, -1] = 2.0**9  # the backward pass begins at the end
    with torch.autocast("cpu", torch.bfloat16):
        loss = token_loss(Exact(), hidden, torch.zeros(1, 65, dtype=torch.long), 0.0, 1)
    loss.backward()
    assert head.weight.grad is not None
    assert head.weight.grad.item() == -total


def test_evaluation_recomputes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, batch = case("gpt")
    recompute_blocks(model)
    monkeypatch.setattr("clearformer.training.recompute.checkpoint", None)  # calling it would raise
    with torch.no_grad():
        state = model.eval().start(batch.tokens, None)
        logits, _ = model.step(batch.tokens[:, :1], state)
    assert logits.shape == (2, 1, 23)


def test_objectives_without_logits_over_a_vocabulary_stay_as_they_are() -> None:
    vit, gpt = case("vit")[1], case("gpt")[1]
    assert not hasattr(in_chunks(vit, "blocks"), "chunk")
    assert in_chunks(gpt, "none").chunk is None
    assert in_chunks(gpt, "blocks").chunk == CHUNK


class Texts:
    """Two micro-batches of random tokens per step."""

    group = 2

    def count(self, epoch: int) -> int:
        return 9

    def load(self, epoch: int, position: int, world: World) -> tuple[list[TextBatch], int]:
        draw = torch.Generator().manual_seed(100 * epoch + position)
        rows = [torch.randint(3, 23, (2, 8), generator=draw) for _ in range(self.group)]
        return [TextBatch(row[:, :-1], row[:, 1:]) for row in rows], 28


def trainer(folder: Path, recompute: str, steps: int = 6) -> Trainer:
    model, objective, _ = case("gpt")
    if recompute == "blocks":
        recompute_blocks(model)
    config = TrainConfig(steps=steps, accumulation=2, log_every=1, save_every=3, recompute=recompute)
    optimizer = OptimConfig(lr=1e-2).build(model)
    parts = (model, in_chunks(objective, config.recompute), optimizer, ScheduleConfig(warmup=2), config)
    return Trainer(*parts, RunFolder(folder), CPU, World())


def test_runs_have_the_same_losses_and_resume_each_other(tmp_path: Path) -> None:
    """Six steps with and without; and three without, resumed with, and the other way round."""
    for how in ("none", "blocks"):
        trainer(tmp_path / how, how).train(Texts())
    for first, second in (("none", "blocks"), ("blocks", "none")):
        interrupted = trainer(tmp_path / f"{first}-{second}", first)
        for position in range(3):
            interrupted.step(*Texts().load(0, position, World()))
            interrupted.meter.clear()
        interrupted.progress.position = 6
        interrupted.save()
        resumed = trainer(tmp_path / f"{first}-{second}", second)
        resumed.resume()
        resumed.train(Texts())
    names = ("none", "blocks", "none-blocks", "blocks-none")
    first, *others = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in names)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in names]
    losses = [[(line["step"], line["loss"], line["grad_norm"]) for line in log] for log in logs]
    assert losses[0] == losses[1]
    assert losses[2] == losses[3] == losses[0][3:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize(("name", "how"), [("gpt", "blocks"), ("transformer", "blocks"), ("gpt", "whole")])
def test_compiled_blocks_are_recomputed(name: str, how: How) -> None:
    """With dropout; the same compiled code draws the same masks in both passes, and stores only the inputs."""
    results, sizes = [], []
    for recompute in ("none", "blocks"):
        torch._dynamo.reset()
        model, objective, batch = case(name)
        if recompute == "blocks":
            recompute_blocks(model)
        run = compiled(in_chunks(objective, recompute), model, how)  # type: ignore[arg-type]
        results.append(loss_and_gradients(model, run, batch)[:-1])
        sizes.append(stored(model, run, batch))
    torch.testing.assert_close(results[0], results[1])
    assert sizes[1] < sizes[0] / 2
    if how == "blocks":
        blocks = [module for module in model.modules() if isinstance(module.forward, Recomputed)]
        assert len(blocks) == N_BLOCKS[name]


class Allocated(TorchDispatchMode):
    """The peak of the bytes that operations allocate and have not freed."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for tensor in outputs if isinstance(outputs, tuple | list) else [outputs]:
            if isinstance(tensor, Tensor) and (key := (storage := tensor.untyped_storage())._cdata) not in self.sizes:
                self.sizes[key] = storage.nbytes()
                finalize(storage, self.sizes.pop, key)
        self.peak = max(self.peak, sum(self.sizes.values()))
        return outputs


@pytest.mark.slow
def test_gpt2_trains_on_32_768_tokens_in_12_gb() -> None:
    """Sizes without values: 5 GB in bfloat16 and 35 GB without recomputation, with Adam and an average of the weights.

    Without dropout on attention patterns, for which the CPU has no fused kernel.
    """
    T, peaks = 32_768, {}
    for recompute in ("none", "blocks"):
        with FakeTensorMode():
            model = GPT(GPTConfig(max_length=T, attention_dropout=0.0))
            always = 4 * sum(p.nbytes for p in model.parameters())  # weights, two moments, average
            if recompute == "blocks":
                recompute_blocks(model)
            objective = in_chunks(CausalLM(CausalLMConfig()), recompute)  # type: ignore[arg-type]
            with Allocated() as allocated:
                tokens = torch.zeros(1, T, dtype=torch.long)
                with torch.autocast("cpu", torch.bfloat16):
                    total, _ = objective(model, TextBatch(tokens, tokens, n_tokens=T))
                total.backward()
        peaks[recompute] = (always + allocated.peak) / 1e9
    assert peaks["blocks"] < 7
    assert peaks["none"] > 25
