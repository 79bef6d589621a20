"""Texts that join and leave the rows of a table are decoded as they would be alone: same tokens, same scores."""

from collections.abc import Callable, Hashable
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from clearformer.generation import open_tables
from clearformer.generation.continuous import decode_alone, start
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.open_policies import Sequences
from clearformer.generation.open_tables import Reading, TableBatch, Tables, settings, step_tables
from clearformer.generation.static import FIRST_TOKENS, Table, as_is
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.transformer import Transformer, TransformerConfig

V, BOS, EOS, N, SOURCE = 301, 1, 2, 43, 16


def random_model(model: Any, eos_bias: float) -> Any:
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    model.unembedding.bias.data[EOS] = eos_bias
    return model.double().eval()


def transformer() -> Any:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 22, "n_heads": 2, "d_ff": 7, "max_length": 91}
    config = {"source_vocab": V, "target_vocab": V, "share": "none", "head_bias": True}
    return random_model(Transformer(TransformerConfig(**config, **sizes)), 5.0)


def gpt() -> Any:
    sizes = {"vocab": V, "n_layers": 2, "d_model": 28, "n_heads": 2, "n_kv_heads": 1, "d_ff": 7, "max_length": 113}
    rotary = {"kind": "rotary"}
    return random_model(GPT(GPTConfig(tied=False, head_bias=True, positions=rotary, **sizes)), 4.0)


MODELS: dict[str, Callable[[], Any]] = {"transformer": transformer, "gpt": gpt}
SETTINGS: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 1, "min_length": 5},
    {"beam": 3},
    {"beam": 4, "stop": "never", "length_penalty": 0.6, "penalty": "gnmt"},
]


def texts() -> list[Sequences]:
    random, todo = Random(5), []
    for _ in range(N):
        config = DecodeConfig(**random.choice(SETTINGS))
        source = [random.randrange(3, V) for _ in range(random.randint(1, 9))]
        todo.append(Sequences(source, BOS, EOS, random.choice([2, 9, 17, 40]), config, config.beam))
    return todo


@torch.inference_mode()
def decode_in_turns(tables: Tables, todo: list[Sequences], seed: int, most: int) -> dict[int, list[Hypothesis]]:
    """Decode with a few texts joining at random moments, at most `most` at a time, each kind in a batch of its own."""
    random = Random(seed)
    coming = random.sample(range(len(todo)), len(todo))
    batches: dict[Hashable, TableBatch] = {}
    owners: dict[Hashable, list[int]] = {}
    leaving: dict[Hashable, set[int]] = {}
    results: dict[int, list[Hypothesis]] = {}
    streamed: dict[int, list[int]] = {i: [] for i in range(len(todo))}
    while len(results) < len(todo):
        n_running = sum(len(owners[key]) - len(leaving[key]) for key in owners)
        new = [coming.pop() for _ in range(min(len(coming), most - n_running, random.choice([0, 0, 1, 2, 19])))]
        started = tables.start([todo[i] for i in new]) if new else None
        for key in {settings(todo[i]): None for i in new} | dict.fromkeys(owners):
            rows = [row for row, i in enumerate(new) if settings(todo[i]) == key]
            joining = [todo[new[row]] for row in rows]
            if key not in batches:
                batches[key], owners[key], leaving[key] = TableBatch(tables, joining[0], SOURCE), [], set()
            order = batches[key].arrange(leaving[key], started, joining, rows)
            both = [*owners[key], *(new[row] for row in rows)]
            owners[key], leaving[key] = [both[i] for i in order], {r for r, i in enumerate(order) if i in leaving[key]}
            if not order:
                del batches[key], owners[key], leaving[key]
        for key, rows in zip(list(batches), step_tables([*batches.values()], random.choice([1, 1, 2, 7]))):
            for row, steps in enumerate(rows):
                if steps and row not in leaving[key]:
                    streamed[owners[key][row]] += [token for one in steps for token in one.tokens if token is not None]
                    assert not any(one.is_done for one in steps[:-1])
                    if steps[-1].is_done:
                        results[owners[key][row]] = batches[key].results(row)
                        leaving[key].add(row)
    for batch in batches.values():
        batch.close()
    for i, one in enumerate(todo):
        if not one.is_beam:
            assert [token for token in streamed[i] if token != EOS] == results[i][0].tokens  # every token, and once
    return results


def assert_as_alone(results: dict[int, list[Hypothesis]], alone: list[list[Hypothesis]]) -> None:
    for i, hypotheses in enumerate(alone):
        assert [h.tokens for h in results[i]] == [h.tokens for h in hypotheses]
        assert [h.logprob for h in results[i]] == pytest.approx([h.logprob for h in hypotheses], abs=1e-9)
        if len(hypotheses) > 1:
            assert [h.score for h in results[i]] == pytest.approx([h.score for h in hypotheses], abs=1e-9)


@torch.inference_mode()
def all_alone(model: Any, todo: list[Sequences]) -> list[list[Hypothesis]]:
    return [decode_alone(model, one) for one in todo]


@pytest.mark.parametrize(("seed", "most"), [(1, 5), (2, 17), (3, 40)])
@pytest.mark.parametrize("name", MODELS)
def test_texts_are_decoded_as_if_alone(name: str, seed: int, most: int) -> None:
    model, todo = MODELS[name](), texts()
    alone = all_alone(model, todo)
    assert_as_alone(decode_in_turns(Tables(model, as_is), todo, seed, most), alone)
    lengths = {len(h.tokens) for hypotheses in alone for h in hypotheses}
    assert min(lengths) < 8  # the comparison is not trivial
    assert max(lengths) > 33  # longer than the first tables


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_and_sources_are_those_of_texts_alone(name: str) -> None:
    model, todo = MODELS[name](), texts()
    alone, tables = all_alone(model, todo), Tables.of(model.cuda())
    assert tables is not None
    assert_as_alone(decode_in_turns(tables, todo, 2, 17), alone)
    assert tables.readings


def test_tables_are_lent_again() -> None:
    model, todo = transformer(), [one for one in texts() if one.width == 3]
    n_made = 0

    def counted(table: Any, step: Any) -> Any:
        nonlocal n_made
        n_made += 1
        return step

    tables = Tables(model, counted)
    first = decode_in_turns(tables, todo, 1, 5)
    n_first = n_made
    again = decode_in_turns(tables, todo, 1, 5)  # sources whose shape recurs are padded to it
    assert_as_alone(again, [first[i] for i in range(len(todo))])
    assert n_made == n_first


def test_a_number_that_is_not_finite_stays_in_its_text() -> None:
    """The row of a text whose keys were not finite serves the next text, as if nothing had happened."""
    model = transformer()
    sick, well, next_one = [one for one in texts() if one.width == 3 and one.limit > 5][:3]
    with torch.inference_mode():
        batch = TableBatch(Tables(model, as_is), sick, SOURCE)
        batch.arrange((), start(model, [sick, well]), [sick, well], [0, 1])
        batch.launch()
        batch.outcome()
        assert batch.table is not None
        for cache in batch.table.state.caches:
            cache.k[0] = cache.v[0] = torch.nan
        batch.launch()
        batch.outcome()
        assert batch.arrange({0}, start(model, [next_one]), [next_one], [0]) == [2, 1]
        results: dict[int, list[Hypothesis]] = {}
        while len(results) < 2:
            batch.launch()
            for row, steps in enumerate(batch.outcome()):
                if steps[-1].is_done and row not in results:
                    results[row] = batch.results(row)
        for row, one in ((0, next_one), (1, well)):
            assert [h.tokens for h in results[row]] == [h.tokens for h in decode_alone(model, one)]


@pytest.mark.parametrize("name", MODELS)
def test_texts_that_were_read_with_longer_ones_keep_to_their_rows(name: str) -> None:
    """The padding after short sources would take the slots of their last tokens, which would then go to other rows."""
    model, config = MODELS[name](), DecodeConfig(beam=3, min_length=FIRST_TOKENS)
    todo = [Sequences([*range(5, 5 + n)], BOS, EOS, FIRST_TOKENS, config, 3) for n in (7, SOURCE - 1, 3 * SOURCE)]
    with torch.inference_mode():
        tables = Tables(model, as_is)
        batch = TableBatch(tables, todo[0], SOURCE)
        batch.arrange((), tables.start(todo), todo[:2], [0, 1])
        for _ in range(FIRST_TOKENS):
            batch.launch()
            batch.outcome()
        results = {row: batch.results(row) for row in batch.done}
    assert_as_alone(results, all_alone(model, todo[:2]))


def test_a_row_that_is_left_when_its_slots_are_full_disturbs_no_other() -> None:
    """A text is cancelled when it has as many tokens as its table can hold; steps go on for the text beside it."""
    model, config = transformer(), DecodeConfig(beam=3, min_length=2 * FIRST_TOKENS)
    left, other, late = (Sequences([5, 7, word], BOS, EOS, 2 * FIRST_TOKENS + 9, config, 3) for word in (11, 13, 17))
    with torch.inference_mode():
        batch = TableBatch(Tables(model, as_is), left, SOURCE)
        batch.arrange((), start(model, [left]), [left], [0])
        for _ in range(FIRST_TOKENS - 5):
            batch.launch()
            batch.outcome()
        batch.arrange((), start(model, [other, late]), [other, late], [0, 1])  # they have room for five tokens less
        for _ in range(5):
            batch.launch()
            batch.outcome()
        batch.arrange({0})
        results: dict[int, list[Hypothesis]] = {}
        while len(results) < 2:
            batch.launch()
            for row, steps in enumerate(batch.outcome()):
                if row > 0 and steps[-1].is_done and row not in results:
                    results[row] = batch.results(row)
        for row, one in ((1, other), (2, late)):
            assert [h.tokens for h in results[row]] == [h.tokens for h in decode_alone(model, one)]


@torch.inference_mode()
def test_after_a_lack_of_memory_there_are_no_tables() -> None:
    model, todo = transformer(), [one for one in texts() if one.width == 3][:2]
    has_room = True

    def prepare(owner: Any, step: Any) -> Any:
        if isinstance(owner, Table) and not has_room:
            raise torch.OutOfMemoryError("no room")
        return step

    tables = Tables(model, prepare)
    first, second = TableBatch(tables, todo[0], SOURCE), TableBatch(tables, todo[1], SOURCE)
    first.arrange((), tables.start(todo[:1]), todo[:1], [0])
    tables.start(todo[:1])
    assert tables.readings
    has_room = False
    with pytest.raises(torch.OutOfMemoryError):
        second.arrange((), tables.start(todo[1:]), todo[1:], [0])
    assert not tables.can_hold(todo[0])
    for batch in (first, second):
        batch.close()
    assert not tables.idle
    tables.start(todo)  # without a recording
    assert not tables.readings


def sources(n_texts: int, length: int) -> list[Sequences]:
    return [Sequences([5] * length, BOS, EOS, 7, DecodeConfig(beam=1), 1)] * n_texts


@torch.inference_mode()
def test_after_a_lack_of_memory_for_a_recording_there_are_no_tables() -> None:
    def prepare(owner: Any, step: Any) -> Any:
        if isinstance(owner, Reading):
            raise torch.OutOfMemoryError("no room")
        return step

    model, todo = transformer(), sources(1, 5)
    tables = Tables(model, prepare)
    batch = TableBatch(tables, todo[0], SOURCE)
    batch.arrange((), tables.start(todo), todo, [0])  # a shape is not recorded the first time
    batch.close()
    assert tables.idle
    with pytest.raises(torch.OutOfMemoryError):
        tables.start(todo)
    assert not tables.can_hold(todo[0])
    assert not tables.idle
    tables.start(todo)  # without a recording


@torch.inference_mode()
def test_sources_are_recorded_when_their_shape_recurs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recordings that are kept need no more memory than all tables may; the last one is always kept."""
    model = transformer()
    tables = Tables(model, as_is)
    for n_texts, length in ((1, 5), (8, 16), (9, 5), (1, 17), (1, 5)):
        tables.start(sources(n_texts, length))
    assert list(tables.readings) == [(8, 16)]  # the shape of two others as well
    most = tables.readings[8, 16].n_bytes * 3
    assert most == 3 * 8 * 16 * (8 + 1 + 2 * 2 * 22 * 8)  # ids, flags, and keys and values of two layers, in float64
    monkeypatch.setattr(open_tables, "most_bytes", lambda device: most)
    tables.start(sources(9, 5))
    assert list(tables.readings) == [(8, 16), (16, 16)]
    tables.start(sources(1, 17))
    assert list(tables.readings) == [(16, 16), (8, 32)]
    assert sum(reading.n_bytes for reading in tables.readings.values()) > most
    tables.start(sources(1, 17))
    assert list(tables.readings) == [(8, 32)]
    tables.start(sources(9, 5))
    assert list(tables.readings) == [(8, 32)]  # a shape that was dropped has to recur once more


def test_samples_penalties_and_adapters_have_no_tables() -> None:
    tables = Tables(transformer(), as_is)

    def one(width: int, seen: Any = None, adapter: int = 0, **config: Any) -> Sequences:
        return Sequences([5], BOS, EOS, 7, DecodeConfig(**config), width, None, seen, adapter)

    assert tables.can_hold(one(1, beam=1))
    assert tables.can_hold(one(3, beam=3))
    assert tables.can_hold(one(1, [5], beam=1))
    assert not tables.can_hold(one(1, [5], beam=1, repetition_penalty=1.2))
    assert not tables.can_hold(one(1, beam=1, temperature=0.5))
    assert not tables.can_hold(one(3, beam=3, adapter=1))
    assert Tables.of(transformer()) is None  # nothing is recorded on a CPU
