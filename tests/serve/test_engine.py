"""An engine answers as its handle does, whatever joins or leaves meanwhile, and one request's trouble is its own."""

import asyncio
import time
from collections.abc import Callable, Iterator
from math import exp
from random import Random
from threading import Event, Thread
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("fastapi")
import torch
from torch import Tensor

from clearformer.errors import CheckpointError, ConfigError, DataError, MachineError
from clearformer.generation import open_tables
from clearformer.generation.continuous import Footprint
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.open_policies import Progress
from clearformer.generation.open_tables import TableBatch, Tables
from clearformer.generation.static import as_is
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.translator import Translator
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.serve.budget import Budget
from clearformer.serve.engine import Engine
from clearformer.serve.scheduler import COMPANY, PATIENCE, Room, Scheduler
from clearformer.serve.shared import Apply
from clearformer.serve.texts import Text
from clearformer.serve.v1.score import Score
from clearformer.serve.waiting import Waiting
from clearformer.serve.work import (
    Answer,
    Busy,
    Call,
    Cancelled,
    Closing,
    Ended,
    Expired,
    Generate,
    Token,
    TooLarge,
    Translate,
)
from clearformer.text import TextConfig, train_tokenizer
from clearformer.tuning.adapters import add_lora, switch
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.row_adapters import mix_adapters

from .conditions import eventually

TEXTS = ["a cat", "the dog sat on the mat", "cats", "", "dogs eat a mat", "the", "on the mat the cat sat and sat"]
TOKENIZER = train_tokenizer(TEXTS * 2, TextConfig(kind="char", vocab_size=101))
V = TOKENIZER.vocab_size


def talkative(model: Any, eos_bias: float) -> Any:
    """A random model in float64, which says the same always, but other things to other texts."""
    torch.manual_seed(5)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.6)
    if model.unembedding.bias is None:
        model.unembedding.bias = torch.nn.Parameter(torch.zeros(V))
    model.unembedding.bias.data[TOKENIZER.eos_id] = eos_bias
    for special in (TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.unk_id):  # they have no text
        model.unembedding.bias.data[special] = -50.0
    return model.double().eval()


def transformer() -> Translator:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 22, "n_heads": 2, "d_ff": 7, "max_length": 61}
    config = TransformerConfig(source_vocab=V, target_vocab=V, share="none", head_bias=True, **sizes)
    return translator(talkative(Transformer(config), 1.0))


def bahdanau() -> Translator:
    sizes = {"d_model": 11, "d_embedding": 7, "max_length": 61}
    return translator(
        talkative(Seq2Seq(Seq2SeqConfig(source_vocab=V, target_vocab=V, attention="additive", **sizes)), 1)
    )


def translator(model: Any) -> Translator:
    return Translator(model, TOKENIZER, TOKENIZER, DecodeConfig(beam=3, max_extra=5))


def gpt() -> LanguageModel:
    sizes = {"n_layers": 2, "d_model": 22, "d_ff": 13, "n_heads": 2, "max_length": 61}
    return LanguageModel(talkative(GPT(GPTConfig(vocab=V, tied=False, head_bias=True, **sizes)), 1.0), TOKENIZER)


def rnn() -> LanguageModel:
    config = RNNConfig(vocab=V, n_layers=2, d_model=13, max_length=61)
    return LanguageModel(talkative(RNN(config), 1.0), TOKENIZER, opening=[TOKENIZER.bos_id])


HANDLES: dict[str, Callable[[], Any]] = {"transformer": transformer, "bahdanau": bahdanau, "gpt": gpt, "rnn": rnn}


@pytest.fixture
def engine_of() -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def create(handle: Any, **settings: Any) -> Engine:
        engines.append(Engine(handle, **settings))
        return engines[-1]

    yield create
    for engine in engines:
        engine.close()
        assert not engine.thread.is_alive()


def requests(handle: Any, random: Random) -> Any:
    """Some work, and the answers of the handle to it."""
    texts = random.sample(TEXTS, random.randint(1, 3))
    seed, n = random.randrange(100), random.choice([1, 1, 2])
    if isinstance(handle, Translator):
        some = [
            {},
            {"beam": 1},
            {"beam": 4, "length_penalty": 0.3},
            {"temperature": 1.2},
            {"top_k": 5, "min_length": 6},
        ]
        settings = random.choice(some)
        return Translate(texts, n, seed, settings), lambda: handle.candidates(texts, n, seed=seed, **settings)
    settings = random.choice(
        [{}, {"temperature": 0.9, "repetition_penalty": 1.2}, {"beam": 3, "temperature": 0.0}, {"top_p": 0.8}]
    )
    settings = {**settings, "max_new": random.randint(1, 25)}
    stop = random.choice([(), ("s", "at"), ("e",)])
    work = Generate(texts, n, stop, seed, settings)
    return work, lambda: handle.generate(texts, n, stop, seed, **settings)


def comparable(results: list[list[Any]]) -> list[list[Any]]:
    """Everything of translations or continuations, but for rounding."""
    return [
        [
            (one.text, one.tokens, pytest.approx(one.logprob, abs=1e-9), getattr(one, "ended", None))
            for one in candidates
        ]
        for candidates in results
    ]


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_the_handle_in_any_order_of_arrival(engine_of: Any, name: str, seed: int) -> None:
    handle, random = HANDLES[name](), Random(seed)
    engine = engine_of(handle, room=Room(rows=random.choice([2, 5, 64])))
    tickets = []
    for _ in range(12):
        work, offline = requests(handle, random)
        tickets.append((engine.submit(work), offline))
        if random.random() < 0.5:
            time.sleep(random.random() / 100)  # the next one joins midway
    for ticket, offline in tickets:
        assert comparable(ticket.result(20)) == comparable(offline())
    assert engine.n_running == engine.n_waiting == 0


@pytest.fixture
def with_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode in tables, as on a GPU, with steps that are not recorded."""
    monkeypatch.setattr(Tables, "of", classmethod(lambda cls, model: cls(model, as_is)))


@pytest.mark.usefixtures("with_tables")
@pytest.mark.parametrize("name", ["transformer", "gpt"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_from_tables_are_those_of_the_handle(engine_of: Any, name: str, seed: int) -> None:
    test_answers_are_those_of_the_handle_in_any_order_of_arrival(engine_of, name, seed)


@pytest.mark.usefixtures("with_tables")
def test_large_steps_are_made_without_tables(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = transformer()
    made: list[int] = []
    init = TableBatch.__init__
    monkeypatch.setattr(TableBatch, "__init__", lambda batch, *args: made.append(1) or init(batch, *args))
    n_weights = sum(weight.numel() for weight in handle.model.parameters())
    monkeypatch.setattr(open_tables, "SMALL_STEP", 3 * n_weights)
    engine = engine_of(handle)
    for beam, n_tables in ((3, 1), (4, 1), (1, 2)):
        work = Translate(["a cat"], settings={"beam": beam})
        assert comparable(engine.submit(work).result(20)) == comparable(handle.candidates(["a cat"], beam=beam))
        assert len(made) == n_tables


@pytest.mark.usefixtures("with_tables")
def test_a_table_that_does_not_fit_is_done_without(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lend(tables: Tables, size: Any, one: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(Tables, "lend", lend)
    handle = transformer()
    answer = engine_of(handle).submit(Translate(["a cat"])).result(20)
    assert comparable(answer) == comparable(handle.candidates(["a cat"]))


def test_a_text_that_leaves_makes_room_at_once(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.engine.LOOK_SECONDS", 1e6)  # nothing is noticed by looking again
    engine = engine_of(transformer(), room=Room(rows=1))
    with engine.paused():
        tickets = [engine.submit(Translate([text])) for text in TEXTS]
    for ticket in tickets:
        ticket.result(60)


def test_memory_is_given_back_after_the_others_have_left(engine_of: Any) -> None:
    """Another engine that comes later must not wait for memory that nobody uses."""
    budget = Budget(10**9)
    first, second = (engine_of(transformer(), budget=budget) for _ in range(2))
    with first.paused():
        tickets = [first.submit(Translate([text])) for text in TEXTS]
        budget.use(first, "here", 5)  # as told while there were two
        second.close()
        assert not budget.is_shared
    for ticket in tickets:
        ticket.result(60)
    assert eventually(lambda: first.n_running == 0 and budget.used_by(first) == 0, 10)


@pytest.mark.usefixtures("with_tables")
def test_texts_that_wait_try_no_tables_after_these_were_given_up(engine_of: Any, monkeypatch: Any) -> None:
    handle, n_tried = transformer(), 0

    def new_table(*args: Any) -> Any:
        nonlocal n_tried
        n_tried += 1
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(open_tables, "new_table", new_table)
    engine = engine_of(handle, room=Room(rows=1))
    with engine.paused():
        tickets = [engine.submit(Translate([text])) for text in TEXTS]
    for ticket, expected in zip(tickets, handle.candidates(TEXTS)):
        assert comparable(ticket.result(20)) == comparable([expected])
    assert n_tried == 1


@pytest.mark.parametrize(("n_hypotheses", "n_turns"), [(None, PATIENCE), (0, PATIENCE), (99, 1)])
def test_a_text_with_tables_waits_for_no_others(n_hypotheses: int | None, n_turns: int) -> None:
    """Without tables, or with a step that is too large for them, a single text waits for a few turns."""
    handle, listener = transformer(), Mock()
    tables = None if n_hypotheses is None else Mock(is_full=False, is_small=lambda n: n <= n_hypotheses)

    def text(tables: Any) -> Text:
        work = Translate(["a cat"], settings={"beam": 1})
        return Text(Mock(is_done=False), work, 0, work.plan(handle)[0], handle.model, tables)

    scheduler, waiting = Scheduler(Room(), listener), Waiting()
    scheduler.again = [text(None) for _ in range(2 * COMPANY)]
    waiting.add([text(tables)])
    turns = [len([*scheduler.admit(waiting)]) for _ in range(n_turns)]
    assert turns == [0] * (n_turns - 1) + [1]


@pytest.mark.usefixtures("with_tables")
def test_an_error_in_a_table_fails_that_request_alone(engine_of: Any) -> None:
    test_an_error_in_one_request_fails_that_request_alone(engine_of, "transformer")


@pytest.mark.usefixtures("with_tables")
def test_a_stream_from_a_table_has_every_token(engine_of: Any) -> None:
    test_a_stream_has_every_token_and_the_text_in_pieces(engine_of)


@pytest.mark.usefixtures("with_tables")
def test_cancelling_frees_the_row_of_a_table(engine_of: Any) -> None:
    test_cancelling_frees_the_place(engine_of)


def test_texts_join_a_running_batch(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)
    sizes: list[int] = []
    step = handle.model.step

    def slow_step(tokens: Tensor, state: Any) -> Any:
        sizes.append(len(tokens))
        time.sleep(0.002)
        return step(tokens, state)

    handle.model.step = slow_step
    long = engine.submit(Translate([TEXTS[1]], settings={"beam": 1, "min_length": 40, "max_extra": 50}))
    while len(sizes) < 5:
        time.sleep(0.001)
    short = engine.submit(Translate(["a cat"], settings={"beam": 1})).result(20)
    assert not long.is_done
    assert 2 in sizes
    assert comparable(short) == comparable(handle.candidates(["a cat"], beam=1))
    long.result(20)


def test_a_stream_has_every_token_and_the_text_in_pieces(engine_of: Any) -> None:
    handle = gpt()
    engine = engine_of(handle)
    settings = {"max_new": 20, "temperature": 1.0}
    *events, answer = engine.submit(Generate(["the", "a"], 2, ("at",), 3, settings, stream=True, top=4))
    expected = handle.generate(["the", "a"], 2, ("at",), 3, **settings)
    assert isinstance(answer, Answer)
    for index, continuations in enumerate(expected):
        spoken = []
        for sequence in range(2):
            mine = [e for e in events if not isinstance(e, Answer) and (e.index, e.sequence) == (index, sequence)]
            *tokens, end = mine
            assert isinstance(end, Ended)
            for token in tokens:
                assert isinstance(token, Token)
                assert len(token.top) == 4
                probability = dict(token.top).get(token.id)
                assert probability is None or probability == pytest.approx(exp(token.logprob))
            ids = [token.id for token in tokens if token.id != TOKENIZER.eos_id]
            spoken.append(("".join(token.text for token in tokens) + end.text, ids, end.reason))
        assert sorted(spoken) == sorted((one.text, one.tokens, one.ended) for one in continuations)


def test_nothing_follows_a_stop_string_in_the_steps_of_a_turn() -> None:
    """A table reports several steps at once, the later ones without knowing of the stop string."""
    handle, work = gpt(), Generate(["the"], 2, ("at",), 3, {"max_new": 20, "temperature": 1.0}, stream=True)
    text = Text(Mock(is_done=False), work, 0, work.plan(handle)[0], handle.model)
    spoken = TOKENIZER.encode("cats"), TOKENIZER.encode("dogs")
    steps = [Progress(both, (-1.0, -1.0), False) for both in zip(*spoken)]
    events, stopped = text.hear(steps, list)
    assert stopped == [0]
    first, second = ([e for e in events if not isinstance(e, Answer) and e.sequence == w] for w in range(2))
    assert [type(event) for event in first] == [Token, Token, Token, Ended]
    assert "".join(event.text for event in first) == "c"
    assert [type(event) for event in second] == [Token] * 4
    assert "".join(event.text for event in second) == "dogs"


def test_beam_search_cannot_be_streamed(engine_of: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be streamed"):
        engine_of(transformer()).submit(Translate(["a"], stream=True))


def test_coroutines_wait_for_answers_and_events(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)

    async def main() -> tuple[Any, Any]:
        tickets = [engine.submit(Translate([text], settings={"beam": 1}, stream=True)) for text in TEXTS]
        events = [event async for event in tickets[1]]
        return await asyncio.gather(*(asyncio.wait_for(read(ticket), 20) for ticket in tickets)), events

    async def read(ticket: Any) -> Any:
        return await ticket

    results, events = asyncio.run(main())
    assert comparable([result[0] for result in results]) == comparable(handle.candidates(TEXTS, beam=1))
    assert "".join(event.text for event in events[:-1]) == events[-1].results[0].text


def test_cancelling_frees_the_place(engine_of: Any) -> None:
    handle = gpt()
    engine = engine_of(handle, room=Room(rows=1))
    endless = Generate(["a"], settings={"max_new": 10_000, "min_length": 10_000})
    handle.model.config = handle.model.config.changed(max_length=10**6)
    handle.model.decoder.positions = torch.nn.Module()  # no position is too late
    handle.model.decoder.positions.add = lambda x, where: x
    handle.model.decoder.positions.bias = lambda queries, keys: None
    handle.model.decoder.positions.rotation = lambda where: None
    first, second = engine.submit(endless), engine.submit(Generate(["the"], settings={"max_new": 3}))
    for _ in range(3):
        assert not second.is_done
        time.sleep(0.01)
    first.cancel()
    with pytest.raises(Cancelled):
        first.result(20)
    assert len(second.result(20)[0][0].tokens) <= 3
    waiting = [engine.submit(endless) for _ in range(3)]
    for ticket in waiting[1:]:
        ticket.cancel()
    while engine.n_waiting:  # they leave the queue, although the first is still in progress
        time.sleep(0.001)
    assert not waiting[0].is_done
    waiting[0].cancel()
    engine.submit(Generate(["the"], settings={"max_new": 3})).result(20)
    assert engine.n_waiting == engine.n_running == 0


@pytest.mark.parametrize("name", HANDLES)
def test_an_error_in_one_request_fails_that_request_alone(engine_of: Any, name: str) -> None:
    """The model raises an error whenever it reads a certain token, which some texts come to and others do not."""
    handle = HANDLES[name]()
    kind: Any = Translate if isinstance(handle, Translator) else Generate
    offline = handle.candidates if isinstance(handle, Translator) else handle.generate
    greedy = {"beam": 1} if isinstance(handle, Translator) else {"max_new": 20}
    step, trap, read = handle.model.step, -1, set[int]()

    def step_into_trap(tokens: Tensor, state: Any) -> Any:
        read.update(tokens.flatten().tolist())
        if trap in tokens:
            raise ArithmeticError("a trap")
        return step(tokens, state)

    handle.model.step = step_into_trap
    expected, inputs = {}, {}
    for text in filter(None, TEXTS):
        read.clear()
        expected[text] = offline([text], **greedy)
        inputs[text] = set(read)
    some, all_of_them = set().union(*inputs.values()), set.intersection(*inputs.values())
    trap = min(some - all_of_them)
    engine = engine_of(handle)
    tickets = {text: engine.submit(kind([text], settings=greedy, stream=True)) for text in expected}
    for text, ticket in tickets.items():
        if trap in inputs[text]:
            with pytest.raises(ArithmeticError):
                ticket.result(20)
        else:
            *events, answer = ticket
            assert comparable([answer.results]) == comparable(expected[text])
            assert "".join(event.text for event in events) == answer.results[0].text  # nothing twice
            assert ticket.n_generated == sum(isinstance(event, Token) for event in events)
    assert {ticket.error is None for ticket in tickets.values()} == {True, False}


def test_an_error_while_reading_fails_that_request_alone(engine_of: Any) -> None:
    handle = transformer()
    start, bad = handle.model.start, TOKENIZER.encode(["d"])[0][0]

    def picky_start(source: Tensor, mask: Any) -> Any:
        if (source == bad).any():
            raise ArithmeticError("a trap")
        return start(source, mask)

    expected = handle.candidates(TEXTS)
    engine = engine_of(handle)
    handle.model.start = picky_start
    for text, ticket, some in zip(TEXTS, [engine.submit(Translate([text])) for text in TEXTS], expected):
        if "d" in text:
            with pytest.raises(ArithmeticError):
                ticket.result(20)
        else:
            assert comparable(ticket.result(20)) == comparable([some])


@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 3, "temperature": 0.0}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["transformer", "gpt"])
def test_a_model_that_computes_no_numbers_has_no_answers(engine_of: Any, name: str, settings: dict[str, Any]) -> None:
    """The ticket fails with the sentence of the handle, and what the engine is asked next is answered."""
    handle = HANDLES[name]()
    kind: Any = Translate if isinstance(handle, Translator) else Generate
    offline = handle.candidates if isinstance(handle, Translator) else handle.generate
    bias = handle.model.unembedding.bias.data
    kept, engine = bias.clone(), engine_of(handle)
    bias[TOKENIZER.eos_id + 1] = torch.nan
    with pytest.raises(CheckpointError, match="values that are not numbers") as raised:
        offline(["a cat"], seed=1, **settings)
    ticket = engine.submit(kind(["a cat"], seed=1, settings=settings))
    with pytest.raises(CheckpointError) as told:
        ticket.result(20)
    assert str(told.value) == str(raised.value)
    bias.copy_(kept)
    answer = engine.submit(kind(["a cat"], seed=1, settings=settings)).result(20)
    assert comparable(answer) == comparable(offline(["a cat"], seed=1, **settings))


def test_mistakes_are_raised_at_once(engine_of: Any) -> None:
    engine = engine_of(gpt())
    with pytest.raises(DataError, match="at most 61"):
        engine.submit(Generate(["a" * 100]))
    with pytest.raises(ConfigError, match="temperature"):
        engine.submit(Generate(["a"], settings={"temperature": -1}))
    with pytest.raises(ConfigError, match="no adapter"):
        engine.submit(Generate(["a"], adapter="legal"))


def test_a_translator_generates_from_its_encoder(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)
    settings = {"temperature": 0.8, "max_new": 9}
    expected = handle.writer().generate(TEXTS, 2, ("s",), 5, **settings)
    assert comparable(engine.submit(Generate(TEXTS, 2, ("s",), 5, settings)).result(20)) == comparable(expected)


def test_prompts_may_be_ids(engine_of: Any) -> None:
    handle = gpt()
    engine = engine_of(handle)
    ids = handle.encode("the mat")
    answers = engine.submit(Generate([ids, "the mat"], settings={"max_new": 9})).result(20)
    assert comparable(answers) == comparable(handle.generate(["the mat"] * 2, max_new=9))
    for wrong in ([], [V], [-1]):
        with pytest.raises(DataError, match="a prompt of ids"):
            engine.submit(Generate([wrong]))


def test_no_texts_have_no_answers(engine_of: Any) -> None:
    ticket = engine_of(transformer()).submit(Translate([]))
    assert ticket.result(20) == []
    assert list(ticket) == []


def test_a_lack_of_memory_is_said_to_whom_it_concerns(engine_of: Any) -> None:
    """Growing a cache fails while a long text joins: it is told, and the others are answered."""
    handle = transformer()
    expected = handle.candidates(TEXTS)
    start = handle.model.start

    def greedy_start(source: Tensor, mask: Any) -> Any:
        if source.size(1) > 25:
            return torch.empty(2**60)
        return start(source, mask)

    engine = engine_of(handle)
    handle.model.start = greedy_start
    tickets = [engine.submit(Translate([text])) for text in TEXTS]
    with pytest.raises(MachineError, match="not enough memory"):
        tickets[-1].result(20)
    assert comparable([ticket.result(20)[0] for ticket in tickets[:-1]]) == comparable(expected[:-1])


def test_requests_take_turns(engine_of: Any) -> None:
    """A request of many texts does not keep a later one waiting until it is finished."""
    engine = engine_of(transformer(), room=Room(rows=2))
    with engine.paused():
        many, one = engine.submit(Translate(["dogs eat a mat"] * 12)), engine.submit(Translate(["a cat"]))
    one.result(20)
    assert len(many.answers) < 8
    many.result(20)


def test_the_first_is_never_overtaken(engine_of: Any) -> None:
    """A text that needs all of the room gets it, although smaller ones would fit before it."""
    handle = transformer()
    engine = engine_of(handle)
    footprint: Any = engine.served.footprint
    small, large = Translate(["a"], settings={"beam": 1}), Translate(TEXTS[-1:], settings={"beam": 5})
    n_bytes = footprint.n_bytes(large.plan(handle)[0].sequences)
    engine = engine_of(handle, room=Room(bytes=n_bytes))
    with engine.paused():
        before = engine.submit(small)
        big = engine.submit(large)
        after = [engine.submit(small) for _ in range(5)]
    big.result(20)
    assert before.finished is not None
    for ticket in after:
        ticket.result(20)
        assert ticket.started >= big.finished
    assert before.started < big.started


def test_the_queue_is_bounded(engine_of: Any) -> None:
    engine = engine_of(transformer(), max_waiting=4)
    with engine.paused():
        tickets = [engine.submit(Translate(["a", "the"])) for _ in range(2)]
        with pytest.raises(Busy) as raised:
            engine.submit(Translate(["a"]))
        assert 1 <= raised.value.retry_after <= 60
    for ticket in tickets:
        ticket.result(20)
    engine.submit(Translate(["a"])).result(20)


def test_engines_share_their_memory(engine_of: Any) -> None:
    """Room for one text: those of two engines take turns, and all are answered."""
    handles = [transformer(), transformer()]
    footprint = Footprint.of(handles[0].model)
    work = Translate(TEXTS[1:2] * 4, settings={"beam": 2})
    n_bytes = max(footprint.n_bytes(plan.sequences) for plan in work.plan(handles[0]))
    budget = Budget(n_bytes * 3 // 2)
    engines = [engine_of(handle, room=Room(), budget=budget) for handle in handles]
    assert [engine.room.bytes for engine in engines] == [budget.bytes] * 2
    running: list[int] = []

    def watched(step: Any) -> Any:
        def watched_step(tokens: Tensor, state: Any) -> Any:
            time.sleep(0.001)  # the other engine has time to make a step, too
            running.append(sum(engine.scheduler.n_texts for engine in engines))
            return step(tokens, state)

        return watched_step

    expected = handles[0].candidates(work.texts, **work.settings)
    for handle in handles:
        handle.model.step = watched(handle.model.step)
    with engines[0].paused(), engines[1].paused():
        tickets = [engine.submit(work) for engine in engines for _ in range(3)]
    for ticket in tickets:
        assert comparable(ticket.result(60)) == comparable(expected)
    assert {*running} == {1}
    engines[0].close()
    assert not budget.is_shared


def test_memory_goes_to_the_engine_that_waits_for_the_longest_time() -> None:
    first, second, third = (Mock() for _ in range(3))
    budget = Budget(100)
    for holder in (first, second, third):
        budget.join(holder)
    budget.use(first, "here", 70)
    budget.need(second, 50)
    budget.need(third, 20)
    assert [budget.left(holder) for holder in (first, second, third)] == [100 - 50 - 20, 30, 100 - 70 - 50]
    budget.tell(first)
    assert [holder.notify.call_count for holder in (first, second, third)] == [0, 1, 1]
    budget.use(first, "here", 0)
    assert [budget.left(holder) for holder in (second, third)] == [100, 50]
    budget.leave(second)
    assert budget.left(third) == 100


def test_a_text_that_never_fits_is_refused(engine_of: Any) -> None:
    engine = engine_of(transformer(), room=Room(bytes=50_000))
    engine.submit(Translate(["a"], settings={"beam": 1})).result(20)
    with pytest.raises(TooLarge, match="MB of caches"):
        engine.submit(Translate(TEXTS, settings={"beam": 30}))


def test_deadlines_end_work_that_waits_and_work_in_progress(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle, room=Room(rows=1))
    step = handle.model.step

    def slow_step(tokens: Tensor, state: Any) -> Any:
        time.sleep(0.02)
        return step(tokens, state)

    handle.model.step = slow_step
    work = Translate(TEXTS[1:2], settings={"beam": 1, "min_length": 40, "max_extra": 50})  # at least 0.8 s
    running, waiting = engine.submit(work, timeout=0.5), engine.submit(work, timeout=0.2)
    patient = engine.submit(Translate(["a"], settings={"beam": 1}), timeout=20)
    for ticket in (running, waiting):
        with pytest.raises(Expired):
            ticket.result(20)
    assert running.started is not None
    assert waiting.started is None
    patient.result(20)


def test_other_work_runs_between_steps(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)
    assert engine.submit(Call(lambda handle: handle.score(["a cat"], ["the"]))).result(20) == [
        [handle.score(["a cat"], ["the"])]
    ]
    with pytest.raises(ZeroDivisionError):
        engine.submit(Call(lambda handle: 1 // 0)).result(20)


def test_a_step_is_made_between_two_calls(engine_of: Any) -> None:
    handle = transformer()
    step, n_steps = handle.model.step, 0

    def counted_step(tokens: Tensor, state: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        return step(tokens, state)

    engine = engine_of(handle)
    handle.model.step = counted_step
    with engine.paused():  # so that all wait together
        text = engine.submit(Translate(["a cat"], settings={"beam": 1, "min_length": 6}))
        calls = [engine.submit(Call(lambda handle: n_steps)) for _ in range(5)]
    assert [call.result(20)[0][0] for call in calls] == [0, 1, 2, 3, 4]
    text.result(20)


def test_a_call_that_nobody_waits_for_is_not_made(engine_of: Any) -> None:
    engine, made = engine_of(transformer()), []

    def call(name: str) -> Call:
        return Call(lambda handle: made.append(name))

    with engine.paused():
        unwanted = engine.submit(call("unwanted"))
        first = engine.submit(Call(lambda handle: late.cancel()))
        late = engine.submit(call("late"))
        last = engine.submit(call("last"))
        unwanted.cancel()
    first.result(20)
    last.result(20)
    assert made == ["last"]


def test_texts_without_words_share_a_turn(engine_of: Any) -> None:
    engine = engine_of(transformer())
    with engine.paused():
        before = engine.totals.steps
        ticket = engine.submit(Translate([""] * 50))
    assert len(ticket.result(20)) == 50
    assert engine.totals.steps - before <= 2


def test_a_new_handle_takes_over_without_dropping_work(engine_of: Any) -> None:
    old, new = transformer(), transformer()
    new.model.unembedding.bias.data[5:9] += 4.0
    expected = [[handle.candidates([text])[0] for text in TEXTS] for handle in (old, new)]
    assert comparable(expected[0]) != comparable(expected[1])
    engine = engine_of(old, room=Room(rows=3))
    before = [engine.submit(Translate([text])) for text in TEXTS]
    engine.swap(new)
    after = [engine.submit(Translate([text])) for text in TEXTS]
    for tickets, answers in zip((before, after), expected):
        assert comparable([ticket.result(20)[0] for ticket in tickets]) == comparable(answers)


def test_rows_of_one_batch_have_different_adapters(engine_of: Any) -> None:
    handle = transformer()
    configs = {
        "legal": LoraConfig(rank=2, targets=("q", "v")),
        "chat": LoraConfig(rank=5, alpha=7.0, targets=("attn.out", "v", "up", "unembedding")),
    }
    for name, config in configs.items():
        add_lora(handle.model, config, name)
        for parameter in handle.model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
    expected = {}
    for adapter in (None, *configs):
        switch(handle.model, adapter)
        expected[adapter] = {beam: comparable(handle.candidates(TEXTS, beam=beam)) for beam in (1, 4)}
    assert len({str(answers) for answers in expected.values()}) == 3
    assert mix_adapters(handle.model) == list(configs)
    engine = engine_of(handle, adapters=dict.fromkeys(configs, handle))
    with engine.paused():
        tickets = [
            (adapter, beam, i, engine.submit(Translate([text], settings={"beam": beam}, adapter=adapter)))
            for i, text in enumerate(TEXTS)
            for beam in (1, 4)
            for adapter in expected
        ]
    for adapter, beam, i, ticket in tickets:
        assert comparable(ticket.result(20)) == [expected[adapter][beam][i]]
    calls = [engine.submit(Call(lambda handle: handle.score("a cat", "cats"), adapter)) for adapter in expected]
    scores = [call.result(20) for call in calls]
    assert len({str(score) for score in scores}) == 3
    with engine.paused():
        pair = [("cats", "a cat")]
        work = [(i, Apply(Score(True, None), pair, adapter)) for i, adapter in enumerate(expected)] * 2
        shared = [(i, engine.submit(one)) for i, one in work]
    for i, ticket in shared:
        assert ticket.result(20)[0][0][0].logprob == pytest.approx(scores[i][0][0], abs=1e-9)
    assert comparable(handle.candidates(TEXTS, beam=4)) == expected[None][4]  # outside of the engine, none is chosen


def test_a_visitor_has_the_model_for_itself(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)
    expected = handle.candidates(TEXTS)
    tickets = [engine.submit(Translate([text])) for text in TEXTS * 5]
    with engine.paused() as mine:
        bias = mine.model.unembedding.bias.data
        kept = bias.clone()
        bias[5:9] += 9.0
        time.sleep(0.02)
        bias.copy_(kept)
    assert comparable([ticket.result(20)[0] for ticket in tickets]) == comparable(expected * 5)


def test_closing_finishes_what_was_accepted(engine_of: Any) -> None:
    handle = transformer()
    engine = engine_of(handle)
    tickets = [engine.submit(Translate([text])) for text in TEXTS]
    engine.close(timeout=20)
    assert comparable([ticket.result(0)[0] for ticket in tickets]) == comparable(handle.candidates(TEXTS))
    with pytest.raises(Closing):
        engine.submit(Translate(["a"]))


def test_closing_at_once_tells_everyone(engine_of: Any) -> None:
    engine = engine_of(transformer(), room=Room(rows=1))
    release = Event()
    blocking = engine.submit(Call(lambda handle: release.wait(20)))
    tickets = [engine.submit(Translate([text])) for text in TEXTS]
    closing = Thread(target=engine.close)
    closing.start()
    release.set()
    closing.join(20)
    assert blocking.is_done
    for ticket in tickets:
        assert ticket.is_done
        if ticket.error is not None:
            with pytest.raises(Closing, match="before the request was finished"):
                ticket.result(0)


def test_closing_answers_a_call_in_progress(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.engine.END_SECONDS", 0.05)
    engine, begun, release = engine_of(transformer()), Event(), Event()
    ticket = engine.submit(Call(lambda handle: begun.set() or release.wait(60)))
    waiting = engine.submit(Translate(["a cat"]))
    assert begun.wait(20)
    engine.close()
    for one in (ticket, waiting):
        with pytest.raises(Closing, match="before the request was finished"):
            one.result(0)
    assert engine.totals.errors == 2
    release.set()
    engine.thread.join(20)


def test_a_long_call_is_not_stuck_before_its_deadline(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.watchdog.STUCK_SECONDS", 0.05)
    engine, begun, release = engine_of(transformer()), Event(), Event()
    ticket = engine.submit(Call(lambda handle: begun.set() or release.wait(60)), timeout=1000)
    assert begun.wait(20)
    time.sleep(0.1)
    assert not engine.is_stuck
    assert ticket.deadline is not None
    engine.watchdog.patient_until = ticket.deadline - 1000  # the deadline has passed
    assert engine.is_stuck
    release.set()
    ticket.result(20)


def test_a_long_visit_is_not_stuck_before_its_time_is_over(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.watchdog.STUCK_SECONDS", 0.05)
    engine = engine_of(transformer())
    for timeout, is_stuck in ((1000.0, False), (0.0, True)):
        with engine.paused(timeout):
            ticket = engine.submit(Translate(["a cat"]))
            time.sleep(0.1)
            assert engine.is_stuck == is_stuck
        ticket.result(20)
        assert eventually(lambda: not engine.is_turning)


def test_a_watchdog_sees_a_stuck_engine(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.serve.watchdog.STUCK_SECONDS", 0.05)
    engine = engine_of(transformer())
    time.sleep(0.1)
    assert not engine.is_stuck  # it has nothing to do
    release = Event()
    ticket = engine.submit(Call(lambda handle: release.wait(20)))
    assert not engine.is_stuck
    time.sleep(0.1)
    assert engine.is_stuck
    release.set()
    ticket.result(20)
    engine.submit(Translate(["a"])).result(20)
    assert not engine.is_stuck
