"""The static decoder against the plain one: the same tokens, and the same scores up to rounding in float64."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.generation import static
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.engine import Decoder, can_record, finished, plain
from clearformer.generation.sampling import generators
from clearformer.generation.static import Recorder, StaticDecoder, power, up
from clearformer.layers.static_cache import StaticState
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.t5 import T5, T5Config
from clearformer.models.transformer import Transformer, TransformerConfig

V, BOS, EOS = 301, 1, 2
N = 23  # sentences

SETTINGS = {
    "greedy": ({"beam": 1}, 1),
    "greedy, not before 5": ({"beam": 1, "min_length": 5}, 1),
    "beam": ({}, 4),
    "patient beam": ({"stop": "never", "length_penalty": 0.6, "penalty": "gnmt", "min_length": 5}, 3),
    "samples": ({"temperature": 1.3, "top_k": 7}, 1),
    "several samples": ({"temperature": 0.9, "top_p": 0.8, "min_length": 4}, 3),
    "repetition": ({"temperature": 1.0, "repetition_penalty": 1.7}, 2),
    "greedy repetition": ({"repetition_penalty": 1.3, "beam": 1}, 1),
}


def transformer(positions: str = "sinusoidal", **settings: Any) -> Transformer:
    config = TransformerConfig(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=2, d_model=24, n_heads=2, d_ff=7,
        share="none", max_length=91, head_bias=True, positions={"kind": positions}, **settings,
    )  # fmt: skip
    return inclined_to_stop(Transformer(config))


def t5() -> T5:
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 24, "n_heads": 2, "d_head": 6, "d_ff": 7}
    config = T5Config(source_vocab=V, target_vocab=V, max_length=91, share="none", head_bias=True, **sizes)
    return inclined_to_stop(T5(config), eos_bias=1.0)


def gpt(kv: int = 2, positions: str = "learned", prompt: str = "causal", **settings: Any) -> GPT:
    config = GPTConfig(
        vocab=V, n_layers=2, d_model=24, n_heads=2, n_kv_heads=kv, d_ff=7, max_length=113, tied=False, head_bias=True,
        positions={"kind": positions}, prompt=prompt, **settings,
    )  # fmt: skip
    return inclined_to_stop(GPT(config), eos_bias=4.0)


MODELS: dict[str, Callable[[], Any]] = {
    "transformer": transformer,
    "rotary": lambda: transformer("rotary"),
    "alibi": lambda: transformer("alibi"),
    "t5": t5,
    "gpt": gpt,
    "grouped": lambda: gpt(kv=1, positions="rotary"),
    "prefix-lm": lambda: gpt(prompt="full"),
    "no norms": lambda: transformer(norm="none"),
    "batch norm, narrow values": lambda: gpt(norm="batch", d_value=5),
}


def inclined_to_stop(model: Any, eos_bias: float = 5.0) -> Any:
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    model.unembedding.bias.data[EOS] = eos_bias
    return model.double().eval()


def sources(n: int = N, width: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source and mask, first tokens, and limits."""
    generator = torch.Generator().manual_seed(n)
    mask = torch.arange(width) < torch.randint(1, width + 1, (n, 1), generator=generator)
    source = torch.randint(3, V, (n, width), generator=generator).masked_fill(~mask, 0)
    return source, mask, torch.full((n,), BOS), torch.randint(1, 80, (n,), generator=generator)


def tokens(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.tokens for h in hypotheses] for hypotheses in results]


def flat(results: list[list[Hypothesis]]) -> list[Hypothesis]:
    return [h for hypotheses in results for h in hypotheses]


def both(model: Any, decoder: StaticDecoder, settings: dict[str, Any], width: int) -> tuple[Any, Any]:
    source, mask, first, limits = sources()
    config = DecodeConfig(**settings)
    is_beam = "beam" not in settings and not config.temperature
    prompts = [[3, 4, i + 5] for i in range(N)]

    def arguments() -> tuple[Any, ...]:
        rngs = () if is_beam else generators(5, range(N))
        return source, mask, first, EOS, limits, config, width, rngs, prompts

    with torch.inference_mode():
        return finished(plain(model, *arguments())), finished(decoder.decode(*arguments()))


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", MODELS)
def test_the_static_decoder_gives_the_tokens_and_scores_of_the_plain_one(name: str, settings: str) -> None:
    """Outputs of up to 80 tokens outgrow the first table twice, and early endings shrink it."""
    model = MODELS[name]()
    decoder = StaticDecoder(model)
    expected, actual = both(model, decoder, *SETTINGS[settings])
    assert tokens(actual) == tokens(expected)
    for ours, theirs in zip(flat(actual), flat(expected)):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-9)
        if settings.endswith("beam"):
            assert ours.score == pytest.approx(theirs.score, abs=1e-9)
    lengths = {len(h.tokens) for h in flat(expected)}
    assert max(lengths) > 32  # the comparison is not trivial
    assert min(lengths) < 10
    assert len({table.size.rows for table in decoder.tables.values()}) > 1
    assert len({table.size.tokens for table in decoder.tables.values()}) > 1


def test_greedy_scores_have_the_length_penalty_of_a_beam_of_one() -> None:
    model = transformer()
    source, mask, first, limits = sources()
    config = DecodeConfig(beam=1, length_penalty=0.7)
    with torch.inference_mode():
        expected = finished(plain(model, source, mask, first, EOS, limits, config, 1))
        actual = finished(StaticDecoder(model).decode(source, mask, first, EOS, limits, config, 1))
    assert tokens(actual) == tokens(expected)
    assert [row[0].score for row in actual] == pytest.approx([row[0].score for row in expected], abs=1e-9)


def test_tables_serve_later_batches_and_are_dropped_when_weights_move() -> None:
    model = transformer()
    decoder = StaticDecoder(model)
    both(model, decoder, {}, 3)
    before = dict(decoder.tables)
    expected, actual = both(model, decoder, {}, 3)  # used tables hold the keys and flags of other sentences
    assert tokens(actual) == tokens(expected)
    assert decoder.tables == before
    model.unembedding.bias = nn.Parameter(model.unembedding.bias.detach() - 1.0)
    expected, actual = both(model, decoder, {}, 3)
    assert tokens(actual) == tokens(expected)
    assert not set(map(id, decoder.tables.values())) & set(map(id, before.values()))


def test_rows_of_an_earlier_batch_leave_no_trace_in_a_reused_table() -> None:
    """A table that was full when its sentences left holds fewer sentences of another batch later."""
    model = transformer()
    model.unembedding.bias.data[EOS] = -1e9  # sentences end at their limits
    decoder, config = StaticDecoder(model), DecodeConfig(beam=1)
    for limits in ([40] * 8, [4] * 9 + [23] * 7):
        source, mask, first, _ = sources(len(limits))
        arguments = (source, mask, first, EOS, torch.tensor(limits), config, 1)
        with torch.inference_mode():
            expected, actual = finished(plain(model, *arguments)), finished(decoder.decode(*arguments))
        assert tokens(actual) == tokens(expected)


def test_a_closed_decoder_leaves_no_trace() -> None:
    model = transformer()
    decoder = StaticDecoder(model)
    source, mask, first, limits = sources()
    with torch.inference_mode():
        steps = decoder.decode(source, mask, first, EOS, limits, DecodeConfig(beam=1), 1, is_watched=True)
        for _ in range(11):
            next(steps)
        steps.close()
        expected, actual = both(model, decoder, {"beam": 1}, 1)
    assert tokens(actual) == tokens(expected)


@pytest.mark.parametrize(("name", "max_length"), [("transformer", 91), ("gpt", 113)])
def test_sources_are_never_wider_than_the_positions_of_the_model(name: str, max_length: int) -> None:
    model = MODELS[name]()
    decoder = StaticDecoder(model)
    for n in (max_length - 20, max_length - 9, max_length - 3):
        source, mask, first, _ = sources(3, n)
        mask[0] = True
        limits = torch.full((3,), 2)
        arguments = (source, mask, first, EOS, limits, DecodeConfig(beam=1), 1)
        with torch.inference_mode():
            assert tokens(finished(Decoder(model).decode(*arguments))) == tokens(finished(plain(model, *arguments)))
            if decoder.can_hold(source):
                assert tokens(finished(decoder.decode(*arguments))) == tokens(finished(plain(model, *arguments)))
    assert decoder.tables
    assert not decoder.can_hold(torch.zeros(1, max_length))


def test_another_adapter_is_another_model() -> None:
    model = transformer()
    decoder = StaticDecoder(model)
    both(model, decoder, {"beam": 1}, 1)
    tables = dict(decoder.tables)
    model.decoder.blocks[0].mlp.active = "legal"
    decoder.drop_outdated()
    assert tables
    assert not decoder.tables


def test_a_watched_decoder_yields_every_token_and_ends_what_it_is_asked_to() -> None:
    model = transformer()
    source, mask, first, limits = sources()
    config = DecodeConfig(beam=1)
    arguments = (source, mask, first, EOS, limits, config, 1, generators(1, range(N)), [()] * N)

    def watched(steps: Any) -> tuple[list[Any], Any]:
        seen, stopped = [], None
        try:
            while True:
                rows, new = steps.send(stopped)
                seen.append(list(zip(rows.tolist(), new.tolist())))
                stopped = new % 7 == 0
        except StopIteration as end:
            return seen, tokens(end.value)

    with torch.inference_mode():
        expected = watched(plain(model, *arguments))
        actual = watched(StaticDecoder(model).decode(*arguments, is_watched=True))
    assert [sorted(step) for step in actual[0]] == expected[0]
    assert actual[1] == expected[1]


def test_a_sentence_joins_a_batch_in_flight() -> None:
    """Rows are independent: a sentence that starts later, beside others, is decoded as if it were alone."""
    model = transformer()
    source, mask, _, _ = sources(5)
    state = StaticState(model, 5, 1, 40, 8)

    def advance(n: int, at: list[int]) -> list[list[int]]:
        for _ in range(n):
            logits, _ = model.step(next_tokens, state)
            next_tokens[at] = logits.argmax(-1)[at]
            for row in at:
                written[row].append(int(next_tokens[row]))
            state.advance(torch.tensor([row not in at for row in range(5)]))
        return written

    written: list[list[int]] = [[] for _ in range(5)]
    next_tokens = torch.full((5, 1), BOS)
    with torch.inference_mode():
        state.admit(torch.tensor([0, 3]), model.start(source[[0, 3]], mask[[0, 3]]))
        advance(4, [0, 3])
        state.admit(torch.tensor([1]), model.start(source[[1]], mask[[1]]))
        advance(6, [0, 1, 3])
        for row, n in ((0, 10), (1, 6), (3, 10)):
            plain_state, token, alone = model.start(source[[row]], mask[[row]]), torch.tensor([[BOS]]), []
            for _ in range(n):
                logits, plain_state = model.step(token, plain_state)
                token = logits.argmax(-1)
                alone.append(int(token))
            assert written[row] == alone


def test_the_oldest_tables_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "MAX_TABLES", 2)
    model = transformer()
    decoder = StaticDecoder(model)
    expected, actual = both(model, decoder, {}, 4)
    assert tokens(actual) == tokens(expected)
    assert len(decoder.tables) == 2
    assert all(table.n_bytes > 10_000 for table in decoder.tables.values())


def test_sizes() -> None:
    assert [up(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 24, 25, 33, 49, 511)] == [
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 512,
    ]  # fmt: skip
    assert [power(n) for n in (0, 1, 2, 3, 33)] == [0, 1, 2, 4, 64]


def test_a_model_on_the_cpu_decodes_plainly_and_a_copy_of_its_decoder_is_fresh() -> None:
    model = transformer()
    decoder = Decoder(model)
    assert not can_record(model)
    assert decoder.static_decoder() is None
    copied = deepcopy(decoder)
    assert copied.model is not model
    assert copied.lock is not decoder.lock


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_give_the_tokens_of_plain_steps(name: str, settings: str) -> None:
    model = MODELS[name]().cuda()
    decoder = StaticDecoder(model, Recorder())
    for _ in range(2):
        expected, actual = both(model, decoder, *SETTINGS[settings])
        assert tokens(actual) == tokens(expected)
        for ours, theirs in zip(flat(actual), flat(expected)):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["transformer", "gpt", "grouped"])
def test_recorded_beam_scores_in_float32_are_within_1e_5(name: str) -> None:
    model = MODELS[name]().cuda().float()
    decoder = StaticDecoder(model, Recorder())
    expected, actual = both(model, decoder, {}, 4)
    assert tokens(actual) == tokens(expected)
    for ours, theirs in zip(flat(actual), flat(expected)):
        assert ours.score == pytest.approx(theirs.score, rel=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_updated_weights_are_read_by_recorded_steps_even_under_autocast() -> None:
    model = transformer().cuda().float()
    decoder = StaticDecoder(model, Recorder())
    with torch.autocast("cuda", torch.bfloat16):
        both(model, decoder, {}, 3)
        model.unembedding.bias.data[EOS] -= 3.0
        model.unembedding.weight.data *= -1.0
        expected, actual = both(model, decoder, {}, 3)
    same = sum(ours[0].tokens == theirs[0].tokens for ours, theirs in zip(actual, expected))
    assert same > N // 2  # bfloat16 decides close calls differently in other kernels
