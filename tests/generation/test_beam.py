"""Beam search against every possible sequence, against Hugging Face's, and against itself one sentence at a time."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from clearformer.checkpoint import load_weights
from clearformer.generation.beam import beam_search, largest, log_total, penalty
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.interop.huggingface.marian import import_config, import_weights
from clearformer.models.transformer import Transformer, TransformerConfig

from ..bounds import float32_bound_of

EOS, PAD = 2, 22
Marian = tuple[MarianMTModel, Transformer]


def pair(seed: int, eos_bias: float = 2.0) -> Marian:
    """The same random weights as Hugging Face's Marian and as our Transformer, float64, so that ties do not decide.

    A head of its own and loud embeddings make what comes next depend on what was written; the bias lets them end.
    """
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=23, d_model=18, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=13, decoder_ffn_dim=13,
        encoder_attention_heads=3, decoder_attention_heads=3, max_position_embeddings=31, scale_embedding=True,
        activation_function="swish", pad_token_id=PAD, decoder_start_token_id=PAD, eos_token_id=EOS,
        forced_eos_token_id=None, share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = MarianMTModel(config).double().eval()
    for name, weight in theirs.named_parameters():
        if "embed_positions" not in name:
            loud = 0.7 if "lm_head" in name or "embed_tokens" in name else 0.3 if weight.dim() > 1 else 0.1
            torch.nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, loud)
    theirs.final_logits_bias[0, EOS] = eos_bias
    ours_config = import_config(config.to_dict(), "Marian")
    ours = Transformer(ours_config).double().eval()
    load_weights(ours, import_weights(theirs.state_dict(), ours_config, "Marian"), "Marian")
    return theirs, ours


def sentences(seed: int, n: int = 7, longest: int = 7) -> tuple[Tensor, Tensor]:
    """Sources (B, S) of different lengths, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(1, PAD, (n, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator)
    lengths[0] = longest
    mask = torch.arange(longest) < lengths[:, None]
    return source.masked_fill(~mask, PAD), mask


@torch.inference_mode()
def search(model: Transformer, source: Tensor, mask: Tensor, limits: Any, **settings: Any) -> list[list[Hypothesis]]:
    n = len(source)
    state = model.start(source, None if mask.all() else mask)
    limits = torch.as_tensor(limits).expand(n)
    return beam_search(model, state, torch.full((n,), PAD), EOS, limits, DecodeConfig(**settings))


@torch.inference_mode()
def forced(model: Transformer, source: Tensor, mask: Tensor, tokens: list[int]) -> float:
    """log p of these tokens (EOS among them if it was written) for one sentence, all at once and without a cache."""
    target = torch.tensor([[PAD, *tokens[:-1]]])
    logits = model.head(model.decode(target, model.encode(source[None], mask[None]), mask[None]))
    return float(logits[0].log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)].sum())


def score_bound(model: Transformer, source: Tensor, mask: Tensor, tokens: list[int]) -> float:
    """What rounding to float32 may do to the log-probability of these tokens; the widest sum is over 18 features."""
    return float32_bound_of(
        model, lambda other: torch.tensor(forced(other, source, mask, tokens), dtype=torch.float64), n_terms=18
    )


# Hugging Face ---------------------------------------------------------------------------------------------------------


def generated(
    model: MarianMTModel, source: Tensor, mask: Tensor, limit: int, config: DecodeConfig
) -> list[list[tuple[list[int], float]]]:
    """What `generate` returns, as (tokens, score) of each sentence's beams."""
    width, ranking = config.beam, {}
    if width > 1:
        ranking = {"length_penalty": config.length_penalty, "early_stopping": config.stop == "never" and "never"}
    if config.min_length:
        ranking["min_new_tokens"] = config.min_length
    out = model.generate(
        source, attention_mask=mask.long(), num_beams=width, num_return_sequences=width, max_new_tokens=limit,
        do_sample=False, return_dict_in_generate=True, output_scores=True, output_logits=True, **ranking,
    )  # fmt: skip
    rows = [row[1:].tolist() for row in out.sequences]
    rows = [row[: row.index(EOS)] if EOS in row else row for row in rows]
    if width > 1:
        scores = out.sequences_scores.tolist()
    else:  # greedy search, which reports no score: the chosen tokens' log-probabilities by hand
        chosen = torch.stack(out.logits, 1).log_softmax(-1).gather(2, out.sequences[:, 1:, None])[:, :, 0]
        lengths = [min(len(row) + 1, limit) for row in rows]
        scores = [float(x[:n].sum()) / n**config.length_penalty for x, n in zip(chosen, lengths)]
    found = list(zip(rows, scores))
    return [found[i : i + width] for i in range(0, len(found), width)]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("stop", ["heuristic", "never"])
def test_same_sequences_and_scores_as_generate(width: int, stop: str) -> None:
    lengths = set()
    for seed, alpha in enumerate([-1.0, 0.0, 0.6, 1.0, 2.0] * 2):
        theirs, ours = pair(100 * width + seed)
        source, mask = sentences(seed)
        settings = DecodeConfig(beam=width, length_penalty=alpha, stop=stop, min_length=3 * (seed % 2))
        expected = generated(theirs, source, mask, 11, settings)
        for found, wanted in zip(search(ours, source, mask, 11, **settings.model_dump()), expected, strict=True):
            assert [h.tokens for h in found] == [tokens for tokens, _ in wanted]
            assert [h.score for h in found] == pytest.approx([score for _, score in wanted], rel=1e-5, abs=1e-5)
            lengths |= {len(h.tokens) for h in found}
    assert len(lengths) > 4, "the comparison is worth little unless sequences end at many lengths"


def test_a_limit_cuts_as_generate_does() -> None:
    theirs, ours = pair(3, eos_bias=-20.0)
    source, mask = sentences(3)
    settings = DecodeConfig(beam=3)
    expected = generated(theirs, source, mask, 5, settings)
    for found, wanted in zip(search(ours, source, mask, 5, beam=3), expected, strict=True):
        assert [h.tokens for h in found] == [tokens for tokens, _ in wanted]
        assert all(len(h.tokens) == 5 for h in found)


# Every sequence there is ----------------------------------------------------------------------------------------------

V, LIMIT, START = 5, 4, 1
WORDS = [token for token in range(V) if token != EOS]
ENDED = [[*body, EOS] for n in range(LIMIT) for body in product(WORDS, repeat=n)]
CUT = [list(body) for body in product(WORDS, repeat=LIMIT)]
EVERY = ENDED + CUT  # 1 + 4 + 16 + 64 that end, 256 that are cut


def toy(seed: int) -> Transformer:
    """Five words, float64, logits loud enough for the words to differ."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=1, d_model=6, n_heads=2, d_ff=7,
        share="none", max_length=11,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    model.unembedding.weight.data *= 3
    return model


@torch.inference_mode()
def logprobs_of_all(model: Transformer, source: Tensor) -> list[float]:
    """log p of EVERY sequence given one source (S,)."""
    rows = torch.tensor([tokens + [EOS] * (LIMIT - len(tokens)) for tokens in EVERY])  # (341, LIMIT)
    lengths = torch.tensor([len(tokens) for tokens in EVERY])
    memory = model.encode(source[None], None).expand(len(rows), -1, -1)
    target = torch.cat([torch.full((len(rows), 1), START), rows[:, :-1]], dim=1)
    chosen = model.head(model.decode(target, memory, None)).log_softmax(-1).gather(2, rows[:, :, None])[:, :, 0]
    result: list[float] = (chosen * (torch.arange(LIMIT) < lengths[:, None])).sum(1).tolist()
    return result


@pytest.mark.parametrize("seed", range(12))
def test_a_beam_as_wide_as_the_space_ranks_every_sequence(seed: int) -> None:
    model = toy(seed)
    sources = torch.randint(V, (2, 3))
    every = [logprobs_of_all(model, source) for source in sources]
    for kind, alpha in product(("power", "gnmt"), (0.0, 0.7, 1.0, 2.0, -1.0)):
        config = DecodeConfig(beam=len(EVERY), length_penalty=alpha, penalty=kind, stop="never")
        with torch.inference_mode():
            state = model.start(sources, None)
            first, limits = torch.full((2,), START), torch.full((2,), LIMIT)
            found = beam_search(model, state, first, EOS, limits, config)
        for hypotheses, logprobs in zip(found, every):
            ranked = sorted(
                ((p / penalty(len(tokens), config), tokens) for p, tokens in zip(logprobs, EVERY)), reverse=True
            )
            assert [h.tokens for h in hypotheses] == [[t for t in tokens if t != EOS] for _, tokens in ranked]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in ranked], abs=1e-10)


# Itself ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"stop": "never"}, {"penalty": "gnmt", "min_length": 2}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_its_sentences_one_by_one(dtype: torch.dtype, settings: dict[str, Any]) -> None:
    """Whatever the others' lengths and limits, and though those that are done leave the batch at various times."""
    model = pair(5)[1].to(dtype)
    source, mask = sentences(5, n=13)
    limits = torch.arange(13) % 5 * 3 + 2
    together = search(model, source, mask, limits, **settings)
    for i, found in enumerate(together):
        width = int(mask[i].sum())
        alone = search(model, source[i : i + 1, :width], mask[i : i + 1, :width], int(limits[i]), **settings)[0]
        if dtype == torch.float64:
            assert [h.tokens for h in found] == [h.tokens for h in alone]
            assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-12)
        else:
            written = [*found[0].tokens, EOS][: int(limits[i])]
            bound = score_bound(model, source[i], mask[i], written)
            if len(found) == 1 or found[0].score - found[1].score > bound:  # else rounding may choose
                assert found[0].tokens == alone[0].tokens
                assert found[0].score == pytest.approx(alone[0].score, abs=bound)
        assert max(len(h.tokens) for h in found) <= limits[i]
    assert len({len(h.tokens) for found in together for h in found}) > 2


def test_a_sequence_cut_at_its_limit_stays_as_it_is_while_others_go_on() -> None:
    """One short limit among many long ones: the sentence is done but still in the batch for several steps."""
    model = pair(3, eos_bias=-20.0)[1]
    source, mask = sentences(3, n=11)
    limits = torch.full((11,), 9)
    limits[4] = 2
    lengths = [[len(h.tokens) for h in found] for found in search(model, source, mask, limits, beam=3)]
    assert lengths == [[2] * 3 if i == 4 else [9] * 3 for i in range(11)]


def test_scores_are_what_forced_decoding_says() -> None:
    model = pair(7)[1]
    source, mask = sentences(7)
    config = DecodeConfig(beam=4, length_penalty=0.6, penalty="gnmt")
    for i, found in enumerate(search(model, source, mask, 9, **config.model_dump())):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == len(found) == 4
        for h in found:
            tokens = h.tokens if len(h.tokens) == 9 else [*h.tokens, EOS]
            assert h.logprob == pytest.approx(forced(model, source[i], mask[i], tokens), abs=1e-10)
            assert h.score == pytest.approx(h.logprob / ((5 + len(tokens)) / 6) ** 0.6, abs=1e-10)


def test_no_sequence_is_shorter_than_the_minimum() -> None:
    model = pair(1, eos_bias=6.0)[1]
    source, mask = sentences(1)
    free, bound = (
        min(len(h.tokens) for found in search(model, source, mask, 9, min_length=minimum) for h in found)
        for minimum in (0, 4)
    )
    assert free < 4 == bound


def test_penalties_by_hand() -> None:
    assert penalty(4, DecodeConfig(length_penalty=0.5)) == 2.0
    assert penalty(7, DecodeConfig(length_penalty=2.0, penalty="gnmt")) == 4.0
    assert penalty(9, DecodeConfig(length_penalty=0.0)) == 1.0


@pytest.mark.parametrize("vocab", [5, 257, 2048, 2999])
def test_the_largest_by_blocks_are_the_largest(vocab: int) -> None:
    x = torch.randn(2, 3, vocab, dtype=torch.float64)
    x[0, 0, -1] = 100.0  # in the tail that fills no block
    values, places = largest(x, 5)
    expected = x.topk(5, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


@pytest.mark.parametrize("vocab", [2048, 2999])
def test_the_places_of_equal_values_have_these_values_and_differ(vocab: int) -> None:
    """Many values are equal, and some of the largest are in the last, smaller block."""
    x = torch.randn(5, 3, vocab, dtype=torch.float64).round()
    x[0, :, -2:] = x[1, :, :2] = 9.0
    values, places = largest(x, 7)
    assert torch.equal(values, x.topk(7, dim=-1).values)
    assert torch.equal(x.gather(-1, places), values)
    assert all(len(set(row)) == 7 for row in places.flatten(0, 1).tolist())


def test_the_log_total_counts_what_was_blotted_out() -> None:
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    expected, banned = x.logsumexp(-1), x[:, :, 4].clone()
    x[:, :, 4] = float("-inf")
    total = log_total(x, x.amax(-1, keepdim=True), banned)
    torch.testing.assert_close(total, expected)
