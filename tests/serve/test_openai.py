"""The official client of OpenAI's API works unchanged."""

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer

from ..tasks.tones import tone, write_wav

openai = pytest.importorskip("openai")
pytest.importorskip("fastapi")

KEY = "secret-token"
MESSAGES = [{"role": "system", "content": "You are a dog."}, {"role": "user", "content": "Who sees a tree?"}]


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def gpt(folders: dict[str, Path]) -> Any:
    return clearformer.load(folders["gpt"])


def test_models(api: Any) -> None:
    names = [model.id for model in api.models.list()]
    assert names[:2] == ["en-fr-small", "gpt"]
    assert api.models.retrieve("gpt").object == "model"
    with pytest.raises(openai.NotFoundError, match="there is no model called `gtp`"):
        api.models.retrieve("gtp")


def test_completions_are_those_of_generate(api: Any, gpt: Any) -> None:
    prompts = ["The dog", "A man likes"]
    answer = api.completions.create(model="gpt", prompt=prompts, max_tokens=7, temperature=0)
    expected = [some[0] for some in gpt.generate(prompts, temperature=0, max_new=7)]
    assert [choice.text for choice in answer.choices] == [one.text for one in expected]
    assert [choice.index for choice in answer.choices] == [0, 1]
    reasons = {"eos": "stop", "length": "length"}
    assert [choice.finish_reason for choice in answer.choices] == [reasons[one.ended] for one in expected]
    n_prompt = sum(len(gpt.encode(prompt)) for prompt in prompts)
    assert answer.usage.prompt_tokens == n_prompt
    assert answer.usage.total_tokens == n_prompt + answer.usage.completion_tokens
    assert 2 <= answer.usage.completion_tokens <= 14


def test_samples_are_repeatable(api: Any, gpt: Any) -> None:
    settings = {
        "model": "gpt",
        "prompt": "The dog",
        "max_tokens": 9,
        "temperature": 0.8,
        "top_p": 0.9,
        "n": 3,
        "seed": 5,
    }
    texts = [choice.text for choice in api.completions.create(**settings).choices]
    expected = gpt.generate("The dog", n=3, seed=5, temperature=0.8, top_p=0.9, max_new=9)
    assert sorted(texts) == sorted(one.text for one in expected)
    assert texts == [choice.text for choice in api.completions.create(**settings).choices]


def test_a_stream_is_the_whole_completion(api: Any) -> None:
    settings: dict[str, Any] = {"model": "gpt", "prompt": "The dog", "max_tokens": 11, "temperature": 0}
    whole = api.completions.create(**settings)
    *chunks, last = api.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert len(chunks) > 3
    assert (last.choices, last.usage) == ([], whole.usage)


def test_log_probabilities(api: Any, gpt: Any) -> None:
    settings: dict[str, Any] = {"model": "gpt", "prompt": "The dog", "max_tokens": 5, "temperature": 0, "logprobs": 2}
    [choice] = api.completions.create(**settings).choices
    [expected] = gpt.generate("The dog", temperature=0, max_new=5)
    n = len(choice.logprobs.tokens)
    assert choice.logprobs.token_logprobs == pytest.approx(expected.logprobs[:n], abs=1e-4)
    for value, top in zip(choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
        assert len(top) == 2
        assert max(top.values()) == pytest.approx(value, abs=1e-4)
    assert choice.logprobs.text_offset[0] == 0
    streamed = [chunk.choices[0] for chunk in api.completions.create(**settings, stream=True)]
    assert [token for one in streamed for token in one.logprobs.tokens] == choice.logprobs.tokens
    assert [at for one in streamed for at in one.logprobs.text_offset] == choice.logprobs.text_offset


def test_a_completion_ends_before_a_stop_string(api: Any, gpt: Any) -> None:
    settings: dict[str, Any] = {"model": "gpt", "prompt": "The dog", "max_tokens": 20, "temperature": 0}
    whole = api.completions.create(**settings).choices[0].text
    stop = whole[len(whole) // 2 :][:2]
    expected = whole[: whole.index(stop)]
    choice = api.completions.create(**settings, stop=stop).choices[0]
    assert (choice.text, choice.finish_reason) == (expected, "stop")
    chunks = list(api.completions.create(**settings, stop=[stop, "never"], stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_prompts_may_be_ids(api: Any, gpt: Any) -> None:
    ids = gpt.encode("The dog")
    settings: dict[str, Any] = {"model": "gpt", "max_tokens": 5, "temperature": 0}
    texts = [api.completions.create(prompt=p, **settings).choices[0].text for p in ("The dog", ids, [ids])]
    assert len(set(texts)) == 1
    with pytest.raises(openai.BadRequestError, match="the vocabulary has"):
        api.completions.create(prompt=[99999], **settings)


def test_a_translator_completes_by_beam_search(api: Any) -> None:
    answer = api.completions.create(
        model="en-fr-small", prompt="Where is the station?", max_tokens=40, n=2, extra_body={"beam": 4}
    )
    expected = clearformer.load().writer().generate("Where is the station?", n=2, beam=4, temperature=0, max_new=40)
    assert [choice.text for choice in answer.choices] == [one.text for one in expected]


def test_chat(api: Any, gpt: Any) -> None:
    settings: dict[str, Any] = {"model": "gpt", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 9}
    answer = api.chat.completions.create(**settings)
    text = "<bos>system: You are a dog.\n<bos>user: Who sees a tree?\n<bos>assistant:"
    ids = gpt.tokenizer.encode_marked(text)
    assert answer.usage.prompt_tokens == len(ids)
    whole = api.completions.create(model="gpt", prompt=ids, temperature=0, max_tokens=9).choices[0]
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", whole.text)
    assert choice.finish_reason == whole.finish_reason
    *chunks, last = api.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.text
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason
    assert last.usage == answer.usage


def test_chat_with_log_probabilities(api: Any) -> None:
    settings: dict[str, Any] = {"model": "gpt", "messages": MESSAGES, "temperature": 0, "max_tokens": 4}
    [choice] = api.chat.completions.create(**settings, logprobs=True, top_logprobs=3).choices
    tokens = choice.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content
    for token in tokens:
        assert next(one.logprob for one in token.top_logprobs) == pytest.approx(token.logprob, abs=1e-4)
        assert sum(math.exp(one.logprob) for one in token.top_logprobs) <= 1.001


def test_chat_needs_a_template(api: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="without a chat template"):
        api.chat.completions.create(model="en-fr-small", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError, match="contains the special token <eos>"):
        api.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "I am<eos>"}])


@pytest.mark.parametrize("format", ["float", "base64", None])
def test_embeddings_are_those_of_embed(api: Any, folders: dict[str, Path], format: str | None) -> None:
    texts = ["The dog sees a tree", "A man"]
    answer = api.embeddings.create(model="bert", input=texts, **({} if format is None else {"encoding_format": format}))
    vectors = [row.embedding for row in answer.data]
    if format == "base64":
        import base64

        vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
    np.testing.assert_allclose(np.array(vectors), clearformer.embed(folders["bert"], texts), atol=1e-5)
    assert answer.usage.prompt_tokens > 0


def test_transcriptions_are_those_of_transcribe(api: Any, folders: dict[str, Path], tmp_path: Path) -> None:
    samples = np.concatenate([tone(word, 0.3) for word in ("low", "mid", "high")])
    path = write_wav(tmp_path / "tones.wav", samples)
    expected = clearformer.transcribe(folders["recogniser"], path)
    with path.open("rb") as file:
        assert api.audio.transcriptions.create(model="recogniser", file=file).text == expected["text"]
    verbose = api.audio.transcriptions.create(
        model="recogniser",
        file=("tones.wav", path.read_bytes()),
        response_format="verbose_json",
        timestamp_granularities=["word"],
    )
    assert verbose.duration == pytest.approx(0.9, abs=0.01)
    assert [word.word for word in verbose.words] == [word["word"] for word in expected["words"]]
    assert expected["words"], "the recogniser is deaf to this recording: the test shows nothing"
    file = ("tones.wav", path.read_bytes())
    plain = api.audio.transcriptions.create(model="recogniser", file=file, response_format="text")
    assert plain.strip() == expected["text"]
    subtitles = api.audio.transcriptions.create(model="recogniser", file=file, response_format="srt")
    assert subtitles.startswith("1\n00:00:00,")
    events = list(api.audio.transcriptions.create(model="recogniser", file=file, stream=True))
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == expected["text"]
    assert [event.type for event in events] == ["transcript.text.delta"] * (len(events) - 1) + ["transcript.text.done"]
    with pytest.raises(openai.BadRequestError, match="srt cannot be streamed"):
        api.audio.transcriptions.create(model="recogniser", file=file, stream=True, response_format="srt")
    with pytest.raises(openai.BadRequestError, match="the recording is not a recording in a supported format"):
        api.audio.transcriptions.create(model="recogniser", file=io.BytesIO(b"no sound"))


def test_errors_are_those_of_the_client(api: Any, url: str) -> None:
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="needs its key"):
        stranger.completions.create(model="gpt", prompt="The dog")
    with pytest.raises(openai.BadRequestError) as raised:
        api.completions.create(model="gpt", prompt="The dog", extra_body={"max_token": 3})
    assert (raised.value.param, raised.value.code) == ("max_token", "unknown_parameter")
    assert raised.value.body["hint"] == "did you mean `max_tokens`?"
    with pytest.raises(openai.UnprocessableEntityError, match="gpt reads at most 97"):
        api.completions.create(model="gpt", prompt="The dog sees a tree. " * 40)
    with pytest.raises(openai.UnprocessableEntityError, match="this server allows 4,096"):
        api.completions.create(model="gpt", prompt="The dog", max_tokens=5000)
    with pytest.raises(openai.BadRequestError, match="repetition_penalty"):
        api.completions.create(model="gpt", prompt="The dog", presence_penalty=1)


async def ask_many(url: str, prompts: list[str]) -> list[str]:
    import asyncio

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as api:
        answers = await asyncio.gather(
            *(api.completions.create(model="gpt", prompt=p, max_tokens=9, temperature=0) for p in prompts)
        )
    return [answer.choices[0].text for answer in answers]


def test_many_at_once_are_answered_as_alone(url: str, gpt: Any) -> None:
    import asyncio

    prompts = [f"The dog sees {i} tree" for i in range(16)]
    texts = asyncio.run(ask_many(url, prompts))
    assert texts == [some[0].text for some in gpt.generate(prompts, temperature=0, max_new=9)]
