"""Requests share passes of a model, and each gets the rows that the handle computes for it alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
import httpx2 as httpx
import torch
from fastapi.testclient import TestClient

import clearformer
from clearformer.errors import DataError, LengthError
from clearformer.handles.batching import BUDGET
from clearformer.handles.classifier import Classifier
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.passes import in_passes
from clearformer.models.bert import BertConfig
from clearformer.models.classifier import Classifier as ClassifierNetwork
from clearformer.models.classifier import ClassifierConfig
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.serve.app import create_app
from clearformer.serve.engine import Engine
from clearformer.serve.limits import Limits
from clearformer.serve.scheduler import BESIDE_STEPS
from clearformer.serve.shared import Apply, Item, Sharing, Verb, take
from clearformer.serve.store import Store
from clearformer.serve.ticket import Ticket
from clearformer.serve.v1.classify import ClassifyTexts
from clearformer.serve.v1.embeddings import Embed
from clearformer.serve.v1.score import Score
from clearformer.serve.waiting import Waiting
from clearformer.serve.work import Call, Cancelled, Closing, Expired, Generate
from clearformer.text import TextConfig, train_tokenizer

from .conditions import eventually
from .test_kinds import close

WORDS = ["the", "a", "cat", "dog", "mat", "sat", "on", "eats", "and", "sees", "tree", "house"]
TOKENIZER = train_tokenizer([" ".join(WORDS)] * 2, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))
V = TOKENIZER.vocab_size
SIZES: dict[str, Any] = {"n_layers": 2, "d_model": 22, "d_ff": 13, "n_heads": 2, "max_length": 61}
CLASSES = ["bad", "good", "neither"]


def in_float64(model: Any) -> Any:
    torch.manual_seed(3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def classifier() -> Classifier:
    base = BertConfig(vocab=V, **SIZES)
    return Classifier(in_float64(ClassifierNetwork(ClassifierConfig(base=base, n_classes=3))), TOKENIZER, CLASSES)


def gpt() -> LanguageModel:
    return LanguageModel(in_float64(GPT(GPTConfig(vocab=V, **SIZES))), TOKENIZER)


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


@dataclass(frozen=True)
class Measure(Verb):
    """The length of each text, of which one counts as so many tokens. `seen` has the items of every pass."""

    name: str = ""
    seen: list[list[str]] = field(default_factory=list, compare=False)
    act: Callable[[list[str]], None] = field(default=lambda items: None, compare=False)

    def prepare(self, handle: Any, items: Sequence[str]) -> list[Item]:
        return [Item(text, len(text)) for text in items]

    def compute(self, handle: Any, items: list[str]) -> list[int]:
        self.seen.append(items)
        self.act(items)
        return list(map(len, items))


def sharing(*sizes: int) -> Sharing:
    items = [Item(None, size) for size in sizes]
    work = Apply(Measure(), items)
    [plan] = Apply(Listed(), items).plan(None)
    return Sharing(Ticket(1), work, 0, plan)


@dataclass(frozen=True)
class Listed(Verb):
    def prepare(self, handle: Any, items: Sequence[Item]) -> list[Item]:
        return list(items)

    def compute(self, handle: Any, items: list[Any]) -> list[Any]:
        raise NotImplementedError


def test_a_pass_takes_one_item_of_each_request_in_turn() -> None:
    large, small, none = sharing(*[7] * 11), sharing(3, 3), sharing()
    assert take([large, small, none], 29) == [large, small, none]
    assert [text.n_taken for text in (large, small, none)] == [3, 2, 0]  # 7 3 7 3 7, and no room for another 7
    assert [text.is_taken for text in (large, small, none)] == [False, True, True]
    huge, one = sharing(101), sharing(1)
    assert take([huge, one], 29) == [huge]  # alone, however large
    assert take([one, sharing(30), other := sharing(28)], 29) == [one, other]  # which does not fit waits


def test_requests_with_items_left_keep_their_places_and_the_first_goes_last() -> None:
    waiting, texts = Waiting(), [sharing(5, 5, 5), sharing(5), sharing(5, 5)]
    for text in texts:
        waiting.add([text])
    assert waiting.take_pass(10) == texts[:2]
    assert [request[0] for request in waiting.requests] == [texts[2], texts[0]]
    assert len(waiting) == 2
    for text in texts:
        text.rows += [0] * len(text.present)
    assert waiting.take_pass(10) == [texts[2], texts[0]]
    assert [request[0] for request in waiting.requests] == [texts[0], texts[2]]
    for text in (texts[0], texts[2]):
        text.rows += [0]
    assert waiting.take_pass(10) == [texts[0], texts[2]]
    assert (len(waiting), waiting.first()) == (0, None)


def sentences(random: Random, n: int) -> list[str]:
    return [" ".join(random.choices(WORDS, k=random.randint(1, 19))) for _ in range(n)]


def assert_rows(rows: Sequence[Any], expected: Sequence[Any]) -> None:
    """Rows are those of the handle: in float64, sums of fewer than 100 products of size 1 differ by 1e-12 at most."""
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected):
        if isinstance(row, dict):
            assert (row["text"], row["label"]) == (other["text"], other["label"])
            tops = [[one["probability"] for one in some["top"]] for some in (row, other)]
            np.testing.assert_allclose(*tops, rtol=0, atol=1e-12)
        else:
            np.testing.assert_allclose(row, other, rtol=0, atol=1e-6 if np.asarray(row).dtype == "float32" else 1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_of_the_handle_alone(engine_of: Any, seed: int) -> None:
    """Vectors, and classes with different settings, at the same time."""
    handle, random = classifier(), Random(seed)
    engine, tickets, n_passes = engine_of(handle), [], 0
    forward = handle.model.forward

    def counted(batch: Any) -> Any:
        nonlocal n_passes
        n_passes += 1
        return forward(batch)

    handle.model.forward = counted
    with engine.paused():  # so that all wait together
        for _ in range(23):
            texts, top = sentences(random, random.randint(1, 5)), random.choice([1, 2])
            if random.random() < 0.5:
                tickets.append((engine.submit(Apply(Embed(), texts)), lambda texts=texts: handle.embed(texts).float()))
            else:
                verb = ClassifyTexts(top, False)
                work = Apply(verb, [(text, None) for text in texts])
                tickets.append((engine.submit(work), lambda texts=texts, top=top: handle.predict(texts, top=top)))
    answers = [(ticket.result(20)[0][0], offline) for ticket, offline in tickets]
    assert n_passes == 2  # a pass of the classifier for each number of classes
    for rows, offline in answers:
        rows = [row[0] if isinstance(row, tuple) else row for row in rows]
        assert_rows(rows, offline())
    assert (engine.n_waiting, engine.n_running) == (0, 0)


def test_scores_of_a_model_that_writes(engine_of: Any) -> None:
    """While it decodes, passes are smaller, and the texts in progress make a step between two of them."""
    handle, random = gpt(), Random(7)
    engine = engine_of(handle)
    step, order = handle.model.step, list[str]()

    def counted_step(tokens: Any, state: Any) -> Any:
        order.append("step")
        return step(tokens, state)

    handle.model.step = counted_step
    score_each = handle.score_each
    handle.score_each = lambda *arguments: order.append("pass") or score_each(*arguments)  # type: ignore[func-returns-value]
    requests = [sentences(random, 40) for _ in range(3)]
    assert sum(len(text.split()) for texts in requests for text in texts) < BUDGET["cpu"]
    with engine.paused():
        text = engine.submit(Generate(["the cat"], settings={"max_new": 9, "min_length": 9, "temperature": 0.0}))
        tickets = [engine.submit(Apply(Score(False, None), [(one, None) for one in texts])) for texts in requests]
    for ticket, texts in zip(tickets, requests):
        rows = ticket.result(20)[0][0]
        assert [row.text for row in rows] == texts
        expected = score_each(texts)
        assert_rows([row.logprob for row in rows], [row.logprob for row in expected])
    text.result(20)
    n_passes = order.count("pass")
    assert (
        2
        < n_passes
        <= 2 + sum(len(one.split()) for some in requests for one in some) // (BUDGET["cpu"] // BESIDE_STEPS - 19)
    )
    first = order.index("pass")
    assert order[first : first + 2 * n_passes - 1] == ["pass", "step"] * (n_passes - 1) + ["pass"]


def test_a_small_request_does_not_wait_for_a_large_one(engine_of: Any) -> None:
    verb, begun, release = Measure(), Event(), Event()
    verb = Measure(act=lambda items: begun.set() or release.wait(20))  # type: ignore[func-returns-value]
    engine = engine_of(classifier())
    large = engine.submit(Apply(verb, ["x" * 1000] * 23))
    assert begun.wait(20)
    small = engine.submit(Apply(verb, ["yy"]))
    release.set()
    assert small.result(20) == [[[2]]]
    assert large.result(20) == [[[1000] * 23]]
    assert [items.count("yy") for items in verb.seen[:2]] == [0, 1]  # in the next pass
    assert max(sum(map(len, items)) for items in verb.seen) <= BUDGET["cpu"]


def test_the_error_of_one_request_fails_that_request_alone(engine_of: Any) -> None:
    def stumble(items: list[str]) -> None:
        if "bad" in items:
            raise DataError("bad", "be good")

    engine, verb = engine_of(classifier()), Measure(act=stumble)
    with engine.paused():
        tickets = {text: engine.submit(Apply(verb, ["a", text, "ccc"])) for text in ("good", "bad", "fine")}
    with pytest.raises(DataError, match="bad"):
        tickets["bad"].result(20)
    assert tickets["good"].result(20) == tickets["fine"].result(20) == [[[1, 4, 3]]]
    assert verb.seen[1:] == [["a", text, "ccc"] for text in ("good", "bad", "fine")]
    assert verb.seen[0] == [text for some in verb.seen[1:] for text in some]


def test_a_text_that_is_too_long_is_refused_alone(engine_of: Any) -> None:
    handle = gpt()
    engine, long = engine_of(handle), "cat " * 70
    with engine.paused():
        good, bad = (engine.submit(Apply(Score(False, None), [(text, None)])) for text in ("the cat", long))
    assert_rows([good.result(20)[0][0][0].logprob], [handle.score("the cat").logprob])
    with pytest.raises(LengthError, match="reads at most 61"):
        bad.result(20)


def test_settings_adapters_and_weights_are_not_mixed(engine_of: Any) -> None:
    old, new = classifier(), classifier()
    engine = engine_of(old, adapters={"one": old, "two": old})
    seen: list[list[str]] = []
    with engine.paused():
        works = [(verb, adapter) for verb in ("p", "q") for adapter in (None, "one", "two")]
        for _ in range(2):
            tickets = [
                engine.submit(Apply(Measure(verb, seen), [f"{verb} {adapter}"], adapter)) for verb, adapter in works
            ]
        engine.swap(new)
        tickets.append(engine.submit(Apply(Measure("p", seen), ["p new"])))
    for ticket in tickets:
        ticket.result(20)
    assert sorted(map(sorted, seen)) == sorted([[f"{verb} {adapter}"] * 2 for verb, adapter in works] + [["p new"]])


def test_a_client_that_leaves_ends_its_work_between_two_passes(engine_of: Any) -> None:
    """The others in its passes are answered."""
    engine, begun, release = engine_of(classifier()), Event(), Event()
    verb = Measure(act=lambda items: begun.set() or release.wait(20))  # type: ignore[func-returns-value]
    large, other = engine.submit(Apply(verb, ["x" * 1000] * 23)), None
    assert begun.wait(20)
    other = engine.submit(Apply(verb, ["yy"]))
    large.cancel()
    release.set()
    assert other.result(20) == [[[2]]]
    assert eventually(lambda: engine.n_waiting == 0)
    assert verb.seen == [["x" * 1000] * 4, ["yy"]]
    with pytest.raises(Cancelled):
        large.result(0)


@pytest.mark.parametrize("end", ["cancel", "deadline", "close"])
def test_a_long_call_ends_between_two_passes_of_the_network(engine_of: Any, end: str) -> None:
    engine, begun, release = engine_of(classifier()), Event(), Event()
    n_passes = 0

    def read_on(handle: Any) -> None:
        nonlocal n_passes
        for _ in in_passes([[0]] * 5, 5):
            n_passes += 1
            begun.set()
            release.wait(20)

    ticket = engine.submit(Call(read_on), 1000)
    assert begun.wait(20)
    before = engine.watchdog.progress
    if end == "cancel":
        ticket.cancel()
    elif end == "deadline":
        ticket.deadline = time.monotonic() - 1
    else:
        engine.turns.between.is_ending = True
    release.set()
    kinds = {"cancel": Cancelled, "deadline": Expired, "close": Closing}
    with pytest.raises(kinds[end]):
        ticket.result(20)
    assert eventually(lambda: not engine.is_turning)
    assert n_passes == 1
    assert engine.watchdog.progress > before
    engine.turns.between.is_ending = False
    assert engine.submit(Call(lambda handle: 5)).result(20) == [[5]]


def test_the_deadlines_of_others_are_noticed_during_a_long_call(engine_of: Any) -> None:
    engine, begun, release = engine_of(classifier()), Event(), Event()
    late: list[Ticket] = []

    def read_on(handle: Any) -> bool:
        begun.set()
        release.wait(20)
        for _ in in_passes([[0]], 1):
            pass
        return late[0].is_done

    ticket = engine.submit(Call(read_on), 1000)
    assert begun.wait(20)
    late.append(engine.submit(Apply(Measure(), ["a"]), 0.0))
    release.set()
    assert ticket.result(20) == [[True]]
    with pytest.raises(Expired):
        late[0].result(0)


# Over HTTP


@pytest.fixture(scope="module")
def requests(folders: dict[str, Path]) -> list[tuple[str, dict[str, Any], Any]]:
    """Requests of all kinds, with the answers of the commands."""
    random = Random(5)
    encoder, rows = clearformer.load(folders["classifier"]), list[tuple[str, dict[str, Any], Any]]()
    words = ["The", "dog", "sees", "a", "tree", "book", "film", "good"]
    for i in range(30):
        texts = [" ".join(random.choices(words, k=1 + i % 13)) for _ in range(3)]
        top, closed = 1 + i % 3, (None, True, False)[i % 3]
        expected: Any = {"texts": clearformer.classify(folders["classifier"], texts, top=top)}
        rows.append(("/v1/classify", {"model": "classifier", "text": texts, "top": top}, expected))
        expected = encoder.embed(texts).tolist()
        rows.append(("/v1/embeddings", {"model": "classifier", "input": texts}, expected))
        for model in ("gpt", "bert"):
            expected = {"scores": clearformer.score(folders[model], texts, closed=closed)}
            rows.append(("/v1/score", {"model": model, "text": texts, "closed": closed}, expected))
        source = f"A dog {i % 2}."
        expected = {"scores": clearformer.score("en-fr-small", ["Un chien.", "Une chatte."], source=source)}
        rows.append(("/v1/score", {"text": ["Un chien.", "Une chatte."], "source": source}, expected))
    random.shuffle(rows)
    return rows


def test_many_clients_get_the_answers_of_the_commands(
    folders: dict[str, Path], serving: Any, requests: list[tuple[str, dict[str, Any], Any]]
) -> None:
    store = Store(["en-fr-small", *folders.values()])
    with serving(create_app(store)) as url, ThreadPoolExecutor(32) as pool:
        post = lambda path, body: httpx.post(f"{url}{path}", json=body, timeout=60)  # noqa: E731
        answers = [pool.submit(post, path, body) for path, body, _ in requests]
        for (path, _, expected), answer in zip(requests, answers):
            values = answer.result().json()
            values = [row["embedding"] for row in values["data"]] if path == "/v1/embeddings" else values
            assert close(values, expected)
    store.close()


def test_recordings_and_images_share_passes(folders: dict[str, Path], serving: Any) -> None:
    from .media_models import as_png, stripes, tone

    store = Store([folders["recogniser"], folders["image_classifier"]])
    sounds = [tone(words, 2000) for words in ("low high", "high", "low low high")]
    pictures = [as_png(stripes(is_vertical, i)) for i, is_vertical in enumerate((True, False))]
    recogniser = store.open("recogniser").handle
    images = store.open("image_classifier").handle
    n_passes = dict.fromkeys(("recogniser", "image_classifier"), 0)
    with TestClient(create_app(store), base_url="http://127.0.0.1:8137") as client, ThreadPoolExecutor(8) as pool:
        calls: list[Callable[[], Any]] = [
            lambda one=one: client.post(
                "/v1/audio/transcriptions", files={"file": one}, data={"response_format": "verbose_json"}
            ).json()
            for one in sounds
        ]
        import base64

        calls += [
            lambda one=one: client.post(
                "/v1/classify", json={"model": "image_classifier", "image": base64.b64encode(one).decode(), "top": 3}
            ).json()
            for one in pictures
        ]
        alone = [call() for call in calls]
        for name, handle in (("recogniser", recogniser), ("image_classifier", images)):
            forward = handle.model.forward

            def counted(*arguments: Any, name: str = name, forward: Any = forward) -> Any:
                n_passes[name] += 1
                return forward(*arguments)

            handle.model.forward = counted
        with store.open("recogniser").use(), store.open("image_classifier").use():
            together = [pool.submit(call) for call in calls]
            assert eventually(
                lambda: [store.open(name).engine.n_waiting for name in n_passes] == [len(sounds), len(pictures)]
            )
        for answer, expected in zip(together, alone):
            assert close(answer.result(), expected)
    assert [*n_passes.values()] == [1, 1]
    store.close()


def test_a_damaged_recording_is_refused_alone(folders: dict[str, Path]) -> None:
    """Its header is right, so that it is noticed in a pass with others."""
    from .media_models import tone

    store, whole = Store([folders["recogniser"]]), tone("low high", 2000)
    engine = store.open().engine
    with TestClient(create_app(store), base_url="http://127.0.0.1:8137") as client, ThreadPoolExecutor(2) as pool:
        post = lambda content: client.post("/v1/audio/transcriptions", files={"file": content})  # noqa: E731
        expected = post(whole).json()
        with engine.paused():
            good, bad = pool.submit(post, whole), pool.submit(post, whole[:-100])
            assert eventually(lambda: engine.n_waiting == 2)
        assert good.result().json() == expected
        error = bad.result().json()["error"]
        assert (bad.result().status_code, error["message"][:27]) == (400, "the recording is truncated:")
    store.close()


def test_a_client_that_leaves_frees_the_engine(folders: dict[str, Path], serving: Any) -> None:
    """Over HTTP: of 64 long texts, those of the pass in progress are the last."""
    from .test_faults import send

    store = Store([folders["classifier"]])
    opened = store.open()
    forward, n_rows, release = opened.handle.model.forward, list[int](), Event()
    begun = Event()

    def slow(batch: Any) -> Any:
        n_rows.append(len(batch.tokens))
        begun.set()
        release.wait(20)
        return forward(batch)

    opened.handle.model.forward = slow
    app = create_app(store)
    with serving(app) as url:
        connection = send(url, "/v1/classify", {"text": ["dog " * 90] * 256})
        assert begun.wait(20)
        connection.close()
        assert eventually(lambda: app.state.traffic.active == 0)
        release.set()
        assert eventually(lambda: not (opened.engine.n_waiting or opened.engine.is_turning))
        assert sum(n_rows) <= BUDGET["cpu"] // 90
        assert httpx.post(f"{url}/v1/classify", json={"text": "dog"}).status_code == 200
    store.close()


def test_a_request_whose_passes_take_too_long(folders: dict[str, Path]) -> None:
    store = Store([folders["classifier"]])
    opened = store.open()
    forward, n_rows = opened.handle.model.forward, 0

    def slow(batch: Any) -> Any:
        nonlocal n_rows
        n_rows += len(batch.tokens)
        time.sleep(0.1)
        return forward(batch)

    opened.handle.model.forward = slow
    with TestClient(create_app(store, limits=Limits(seconds=0.25)), base_url="http://127.0.0.1:8137") as client:
        response = client.post("/v1/classify", json={"text": ["dog " * 90] * 256})
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
        assert eventually(lambda: not (opened.engine.n_waiting or opened.engine.is_turning))
        assert n_rows < 256
    store.close()
