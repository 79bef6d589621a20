from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.generation.beam import beam_search
from clearformer.generation.decode import DecodeConfig, Hypothesis, sample, until
from clearformer.generation.sampling import generators, greedy, sampler
from clearformer.layers.cache import DecodeState
from clearformer.models.transformer import Transformer, TransformerConfig

V, BOS, EOS = 13, 1, 2


@pytest.fixture
def model() -> Transformer:
    """Random, float64, loud enough that words differ, and inclined to stop."""
    torch.manual_seed(3)
    config = TransformerConfig(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=2, d_model=22, n_heads=2, d_ff=7,
        share="none", max_length=31, head_bias=True,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    model.unembedding.weight.data *= 3
    model.unembedding.bias.data[EOS] = 1.5
    return model


def sources(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    mask = torch.arange(7) < torch.randint(1, 8, (n, 1), generator=generator)
    return torch.randint(3, V, (n, 7), generator=generator).masked_fill(~mask, 0), mask


@torch.inference_mode()
def write(model: Transformer, source: Tensor, mask: Tensor, limits: Tensor, choose: Any, **n: int) -> Any:
    return sample(model, model.start(source, mask), torch.full((len(source),), BOS), EOS, limits, choose, **n)


def words(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.tokens for h in branches] for branches in results]


def test_log_probabilities_are_those_of_forced_decoding(model: Transformer) -> None:
    """Of the model's own distribution, whatever temperature the tokens were drawn at."""
    source, mask = sources(5)
    limits = torch.full((5,), 9)
    results = write(model, source, mask, limits, sampler(1.7, generators(1, range(5))), width=3)
    with torch.inference_mode():
        memory = model.encode(source, mask)
        for i, branches in enumerate(results):
            for h in branches:
                tokens = h.tokens if len(h.tokens) == 9 else [*h.tokens, EOS]
                hidden = model.decode(torch.tensor([[BOS, *tokens[:-1]]]), memory[i : i + 1], mask[i : i + 1])
                logprobs = model.head(hidden)[0].log_softmax(-1)
                assert h.logprob == h.score
                assert h.logprob == pytest.approx(float(logprobs[range(len(tokens)), tokens].sum()), abs=1e-10)


def test_greedy_writing_is_a_beam_of_one(model: Transformer) -> None:
    source, mask = sources(11)
    limits = torch.full((11,), 9)
    found = write(model, source, mask, limits, greedy)
    with torch.inference_mode():
        state = model.start(source, mask)
        beams = beam_search(model, state, torch.full((11,), BOS), EOS, limits, DecodeConfig(beam=1))
    assert words(found) == words(beams)
    assert words(found) == words(write(model, source, mask, limits, sampler(1e-5, generators(1, range(11)))))
    assert [b[0].logprob for b in found] == pytest.approx([b[0].logprob for b in beams], abs=1e-10)


def test_a_batch_is_its_sentences_one_by_one_though_some_leave_early(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, mask = sources(11)
    limits = torch.arange(11) % 4 * 3 + 1
    sizes = []
    keep = DecodeState.keep

    def watched(state: DecodeState, rows: Tensor) -> None:
        sizes.append(len(rows))
        keep(state, rows)

    monkeypatch.setattr(DecodeState, "keep", watched)
    together = write(model, source, mask, limits, greedy)
    assert len(sizes) > 2, "sentences should leave at several times"
    for i, branches in enumerate(together):
        width = int(mask[i].sum())
        alone = write(model, source[i : i + 1, :width], mask[i : i + 1, :width], limits[i : i + 1], greedy)
        assert words([branches]) == words(alone)
        assert branches[0].logprob == pytest.approx(alone[0][0].logprob, abs=1e-12)
        assert len(branches[0].tokens) <= limits[i]


def test_samples_are_reproducible_and_independent(model: Transformer) -> None:
    """Of many branches, those that begin with the likeliest word are as many as the model says there should be."""
    source, mask = sources(1)
    limits, n = torch.tensor([1]), 1009
    first, again, other = (
        words(write(model, source, mask, limits, sampler(1.0, generators(s, [0])), width=n)) for s in (1, 1, 2)
    )
    assert first == again
    assert first != other
    with torch.inference_mode():
        logits = model.head(model.decode(torch.tensor([[BOS]]), model.encode(source, mask), mask))
    wanted, likeliest = logits[0, 0].softmax(-1).max(0)
    counted = sum(tokens == until([int(likeliest)], EOS) for tokens in first[0]) / n
    assert 0 < wanted < 0.95
    assert abs(counted - wanted) < 5 * (wanted * (1 - wanted) / n) ** 0.5


def test_branches_do_not_see_one_another(model: Transformer) -> None:
    """Forcing branch w to write token w + 3 for ever: its log-probability is that of the sequence alone."""
    source, mask = sources(2)

    def stubborn(first: int) -> Any:
        return lambda logits, rows: (torch.arange(logits.size(1)) + first).expand(logits.shape[:2])

    limits = torch.full((2,), 5)
    together = write(model, source, mask, limits, stubborn(3), width=3)
    by_branch = [sorted(branches, key=lambda h: h.tokens) for branches in together]
    for w in range(3):
        alone = write(model, source, mask, limits, stubborn(3 + w))
        for sentence in range(2):
            assert by_branch[sentence][w].tokens == alone[sentence][0].tokens == [3 + w] * 5
            assert by_branch[sentence][w].logprob == pytest.approx(alone[sentence][0].logprob, abs=1e-10)


def test_a_sample_is_the_same_alone_and_in_any_batch(model: Transformer) -> None:
    source, mask = sources(11)
    limits = torch.arange(11) % 4 * 3 + 1
    together = words(write(model, source, mask, limits, sampler(1.3, generators(7, range(11)), k=5, p=0.9), width=3))
    for i in range(11):
        one = slice(i, i + 1)
        alone = write(model, source[one], mask[one], limits[one], sampler(1.3, generators(7, [i]), k=5, p=0.9), width=3)
        assert words(alone) == [together[i]]
    order = torch.arange(10, -1, -1)
    backwards = sampler(1.3, generators(7, order.tolist()), k=5, p=0.9)
    assert words(write(model, source[order], mask[order], limits[order], backwards, width=3)) == together[::-1]


def test_of_each_sentence_the_likeliest_sample_comes_first(model: Transformer) -> None:
    source, mask = sources(5)
    found = write(model, source, mask, torch.full((5,), 9), sampler(2.0, generators(1, range(5))), width=7)
    for branches in found:
        assert [h.logprob for h in branches] == sorted((h.logprob for h in branches), reverse=True)


@pytest.mark.parametrize("choose", [greedy, sampler(1.0, generators(1, range(7)))])
def test_no_sample_is_shorter_than_the_minimum(model: Transformer, choose: Any) -> None:
    model.unembedding.bias.data[EOS] = 9.0
    source, mask = sources(7)
    limits = torch.full((7,), 9)
    free, bound = (write(model, source, mask, limits, choose, width=3, min_length=n) for n in (0, 4))
    shortest = [min(len(h.tokens) for branches in found for h in branches) for found in (free, bound)]
    assert shortest == [0, 4]
    assert max(h.logprob for branches in bound for h in branches) < -4.0, "the model's own odds, EOS among them"


def test_the_maximum_length_follows_from_the_source() -> None:
    assert [DecodeConfig(max_ratio=1.5, max_extra=7).limit(n) for n in (1, 2, 11)] == [8, 10, 23]
    assert DecodeConfig(max_ratio=0.29, max_extra=7).limit(100) == 36  # 0.29 · 100 is less than 29 in float64


def test_until_stops_before_the_end() -> None:
    assert until([5, 6, EOS, 7, EOS], EOS) == [5, 6]
    assert until([5, 6], EOS) == [5, 6]
    assert until([EOS], EOS) == []
