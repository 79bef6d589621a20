"""Texts that join and leave a running batch are decoded as they would be alone: same tokens, same scores in float64."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from clearformer.generation.continuous import (
    Batch,
    Footprint,
    decode_alone,
    rearranged,
    start,
    step_together,
    width_for,
)
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.open_policies import Sequences
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.joined import can_join
from clearformer.layers.open_cache import OpenState
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.models.t5 import T5, T5Config
from clearformer.models.transformer import Transformer, TransformerConfig

V, BOS, EOS = 301, 1, 2
N = 17  # texts


def transformer(positions: str = "sinusoidal") -> Any:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 24, "n_heads": 2, "d_ff": 7, "max_length": 91}
    config = {"source_vocab": V, "target_vocab": V, "share": "none", "head_bias": True}
    return inclined_to_stop(Transformer(TransformerConfig(**config, **sizes, positions={"kind": positions})))


def t5() -> Any:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 24, "n_heads": 2, "d_head": 6, "d_ff": 7}
    return inclined_to_stop(T5(T5Config(source_vocab=V, target_vocab=V, share="none", head_bias=True, **sizes)), 1.0)


def gpt(**settings: Any) -> Any:
    sizes = {"vocab": V, "n_layers": 2, "d_model": 24, "n_heads": 2, "d_ff": 7, "max_length": 113}
    return inclined_to_stop(GPT(GPTConfig(**sizes, tied=False, head_bias=True, **settings)), 4.0)


def seq2seq(attention: str, cell: str = "gru") -> Any:
    sizes = {"source_vocab": V, "target_vocab": V, "d_model": 11, "d_embedding": 7}
    return inclined_to_stop(Seq2Seq(Seq2SeqConfig(**sizes, attention=attention, cell=cell)), 2.0)


def rnn(cell: str) -> Any:
    return inclined_to_stop(RNN(RNNConfig(vocab=V, n_layers=2, d_model=13, cell=cell)), 1.5)


MODELS: dict[str, Callable[[], Any]] = {
    "transformer": transformer,
    "rotary": lambda: transformer("rotary"),
    "alibi": lambda: transformer("alibi"),
    "t5": t5,
    "gpt": gpt,
    "grouped": lambda: gpt(n_kv_heads=1, positions={"kind": "rotary"}),
    "prefix-lm": lambda: gpt(prompt="full"),
    "batch norm, narrow values": lambda: gpt(norm="batch", d_value=5),
    "without residuals or norms": lambda: gpt(norm="none", residual="none", positions={"kind": "none"}),
    "bahdanau": lambda: seq2seq("additive"),
    "without attention": lambda: seq2seq("none", "lstm"),
    "lstm": lambda: rnn("lstm"),
    "gru-notes": lambda: rnn("gru-notes"),
}
SETTINGS: dict[str, list[tuple[int, dict[str, Any]]]] = {  # the number of hypotheses, and settings that may be mixed
    "single": [
        (1, {}),
        (1, {"min_length": 5}),
        (1, {"temperature": 1.3, "top_k": 7}),
        (1, {"repetition_penalty": 1.3}),
    ],
    "samples": [(3, {"temperature": 1.0}), (3, {"temperature": 0.9, "top_p": 0.8, "min_length": 4})],
    "beams": [
        (4, {}),
        (4, {"stop": "never", "length_penalty": 0.6, "penalty": "gnmt"}),
        (4, {"min_length": 7, "length_penalty": -0.5}),
    ],
}


def inclined_to_stop(model: Any, eos_bias: float = 5.0) -> Any:
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    if model.unembedding.bias is None:
        model.unembedding.bias = nn.Parameter(torch.zeros(V))
    model.unembedding.bias.data[EOS] = eos_bias
    return model.double().eval()


def texts(kind: str) -> list[Sequences]:
    random, found = Random(5), []
    for i in range(N):
        width, settings = random.choice(SETTINGS[kind])
        config = DecodeConfig(beam=width, **settings)
        source = [random.randrange(3, V) for _ in range(random.randint(1, 9))]
        seed = f"3 {i}" if config.temperature else None
        seen = None if kind == "beams" else source
        found.append(Sequences(source, BOS, EOS, random.randint(2, 40), config, width, seed, seen))
    return found


@torch.inference_mode()
def decode_in_turns(model: Any, todo: Sequence[Sequences], seed: int, most: int = 7) -> dict[int, list[Hypothesis]]:
    """Decode with a few texts joining at random moments, at most `most` at a time."""
    random = Random(seed)
    coming = random.sample(range(len(todo)), len(todo))
    batch = Batch(model, max(one.width for one in todo), todo[0].is_beam, EOS)
    owners: list[int] = []
    leaving: set[int] = set()
    results: dict[int, list[Hypothesis]] = {}
    while coming or len(leaving) < len(owners):
        room = most - len(owners) + len(leaving)
        new = [coming.pop() for _ in range(min(len(coming), room, random.choice([0, 0, 1, 2, 5])))]
        joining = [todo[i] for i in new]
        if not new and not owners:
            continue
        order = batch.arrange(leaving, start(model, joining) if new else None, joining, range(len(new)))
        owners, leaving = [[*owners, *new][i] for i in order], set()
        for row, progress in enumerate(batch.step() if owners else []):
            if progress.is_done:
                results[owners[row]] = batch.results(row)
                leaving.add(row)
    return results


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_decoded_as_if_alone(name: str, kind: str) -> None:
    model, todo = MODELS[name](), texts(kind)
    results = decode_in_turns(model, todo, seed=len(name))
    lengths = set()
    for i, one in enumerate(todo):
        with torch.inference_mode():
            alone = decode_alone(model, one)
        assert [h.tokens for h in results[i]] == [h.tokens for h in alone]
        assert [h.logprob for h in results[i]] == pytest.approx([h.logprob for h in alone], abs=1e-9)
        assert [h.logprobs for h in results[i]] == [pytest.approx(h.logprobs, abs=1e-9) for h in alone]
        if one.is_beam:
            assert [h.score for h in results[i]] == pytest.approx([h.score for h in alone], abs=1e-9)
        lengths |= {len(h.tokens) for h in alone}
    assert min(lengths) < 8  # the comparison is not trivial
    assert max(lengths) > 7


@pytest.mark.parametrize("name", ["transformer", "rotary", "grouped", "t5", "bahdanau"])
def test_batches_with_different_numbers_of_hypotheses_share_a_pass(name: str) -> None:
    """T5 has biases on its scores, and a recurrent network no attention of ours: their batches make a pass each."""
    model, batches = MODELS[name](), []
    n_passes, step = 0, model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        nonlocal n_passes
        n_passes += 1
        return step(tokens, state)

    with torch.inference_mode():
        for kind in SETTINGS:
            todo = [replace(one, limit=12) for one in texts(kind)[:5]]
            batch = Batch(model, todo[0].width, todo[0].is_beam, EOS)
            batch.arrange((), start(model, todo), todo, range(5))
            batches.append((todo, batch, dict[int, Any]()))
        cores = [layer.core for layer in model.modules() if isinstance(layer, MultiHeadAttention)]
        model.step = counted
        for _ in range(12):
            progress = step_together([batch for _, batch, _ in batches])
            for (_, batch, results), rows in zip(batches, progress):
                for row, new in enumerate(rows):
                    if new.is_done:
                        results.setdefault(row, batch.results(row))
        assert n_passes == (12 if can_join(model) else 36)
        assert can_join(model) == (name not in ("t5", "bahdanau"))
        assert cores == [layer.core for layer in model.modules() if isinstance(layer, MultiHeadAttention)]
        for todo, _, results in batches:
            for row, one in enumerate(todo):
                assert [h.tokens for h in results[row]] == [h.tokens for h in decode_alone(model, one)]


@pytest.mark.parametrize("name", ["transformer", "gpt", "grouped"])
def test_beams_of_several_widths_share_a_batch(name: str) -> None:
    model = MODELS[name]()
    widths = zip(texts("beams"), cycle((2, 3, 5)))
    todo = [replace(one, width=width, config=one.config.model_copy(update={"beam": width})) for one, width in widths]
    assert {width_for(model, one) for one in todo} == {5}
    results = decode_in_turns(model, todo, seed=11)
    for i, one in enumerate(todo):
        with torch.inference_mode():
            alone = decode_alone(model, one)
        assert [h.tokens for h in results[i]] == [h.tokens for h in alone]
        assert [h.score for h in results[i]] == pytest.approx([h.score for h in alone], abs=1e-9)
        assert len(results[i]) <= one.width


@torch.inference_mode()
def test_hypotheses_that_do_not_exist_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, todo = transformer(), [replace(one, width=6) for one in texts("beams")[:4]]
    batch = Batch(model, width_for(model, todo[0]), True, EOS)
    batch.arrange((), start(model, todo), todo, range(4))
    n_computed, step = 0, model.step

    def counted(tokens: Tensor, state: Any) -> Any:
        nonlocal n_computed
        n_computed += tokens.numel()
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    step_together([batch])
    assert batch.policy.width == 16
    assert n_computed == 4 * 6


def test_slots_of_hypotheses_that_died_out_are_used_again() -> None:
    model = transformer()
    config = DecodeConfig(min_length=60)
    todo = [Sequences([5, 6, 7], BOS, EOS, 60, config, 4)]
    batch = Batch(model, 4, True, EOS)
    with torch.inference_mode():
        batch.arrange((), start(model, todo), todo, [0])
        while not batch.step()[0].is_done:
            pass
        tokens = [h.tokens for h in batch.results(0)]
        assert tokens == [h.tokens for h in decode_alone(model, todo[0])]
    state: Any = batch.state
    assert len(tokens[0]) == 60
    assert state.n_slots < 2 * 60  # without, 4 · 60


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(("name", "embedding"), [("gpt", "embedding"), ("transformer", "source_embedding")])
def test_a_number_that_is_not_finite_stays_in_its_text(name: str, embedding: str, width: int) -> None:
    """Rows are used again, and 0 · NaN is NaN: what a text leaves behind must not reach the next one."""
    model, config = MODELS[name](), DecodeConfig(beam=width)
    getattr(model, embedding).weight.data[V - 1] = float("nan")
    sources = [V - 1] * 9, [5] * 9, [7, 8]
    bad, long, short = (Sequences(source, BOS, EOS, 30, config, width) for source in sources)
    with torch.inference_mode():
        batch = Batch(model, width, width > 1, EOS)
        batch.arrange((), start(model, [bad, long]), [bad, long], [0, 1])
        for _ in range(2):
            batch.step()
        assert batch.logits is not None
        assert batch.logits[:width].isnan().all()
        assert batch.arrange({0}, start(model, [short]), [short], [0]) == [2, 1]
        while not batch.step()[0].is_done:
            assert not batch.logits.isnan().any()
        assert [h.tokens for h in batch.results(0)] == [h.tokens for h in decode_alone(model, short)]


@pytest.mark.parametrize("seed", range(20))
def test_free_rows_are_filled_and_as_few_as_possible_move(seed: int) -> None:
    random = Random(seed)
    n, n_new = random.randrange(9), random.randrange(6)
    leaving = set(random.sample(range(n), random.randint(0, n)))
    order = rearranged(n, leaving, n_new)
    assert sorted(order) == [*sorted({*range(n)} - leaving), *range(n, n + n_new)]
    n_moved = sum(row != old < n for row, old in enumerate(order))
    assert n_moved <= max(0, len(leaving) - n_new)


@torch.inference_mode()
def test_a_batch_that_is_no_longer_used_frees_its_buffers_at_once() -> None:
    model, todo = transformer(), texts("beams")[:3]
    gc.disable()
    try:
        batch = Batch(model, 4, True, EOS)
        batch.arrange((), start(model, todo), todo, range(3))
        batch.step()
        assert isinstance(batch.state, OpenState)
        keys = ref(batch.state.caches[0].k)
        del batch
        assert keys() is None
    finally:
        gc.enable()


def test_the_footprint_is_at_least_what_a_batch_takes() -> None:
    model = transformer()
    footprint = Footprint.of(model)
    assert footprint is not None
    todo = texts("beams")[:5]
    batch = Batch(model, 4, True, EOS)
    with torch.inference_mode():
        batch.arrange((), start(model, todo), todo, range(5))
        while not all(progress.is_done for progress in batch.step()):
            pass
    state: Any = batch.state
    rows = [rows for cache in state.caches for rows in (cache.k, cache.v)] + [r for pair in state.kept for r in pair]
    in_use = sum(r.view(5, state.n_slots if i < 4 else state.n_memory).nbytes for i, r in enumerate(rows))
    assert in_use <= 5 * max(footprint.n_bytes(one) for one in todo)
