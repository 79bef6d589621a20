from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE, Batch
from clearformer.errors import ConfigError
from clearformer.generation.decode import sample
from clearformer.generation.sampling import greedy
from clearformer.layers.attention import PlainCore
from clearformer.layers.backends import RecordingCore
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.objectives.translation import Translation, TranslationConfig

B, S, T, V = 3, 7, 5, 23
PAD, BOS, EOS = 0, 1, 2

SMALL: dict[str, Any] = {
    "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 12, "d_ff": 17,
    "n_heads": 3, "max_length": 31, "dropout": 0.0,
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "halves": {"positions": {"kind": "sinusoidal", "layout": "halves"}},
    "learned": {"positions": {"kind": "learned"}},
    "rotary": {"positions": {"kind": "rotary"}},
    "alibi": {"positions": {"kind": "alibi"}},
    "t5": {"positions": {"kind": "t5", "n_buckets": 6, "max_distance": 5}},
    "none": {"positions": {"kind": "none"}},
    "post-norm": {"residual": "post", "final_norm": False},
    "shared-keys": {"n_heads": 6, "n_kv_heads": 2, "positions": {"kind": "rotary"}},
    "swiglu-rms": {"activation": "swiglu", "norm": "rms", "bias": False, "share": "none"},
    "unscaled-gelu": {"scale_embedding": False, "activation": "gelu"},
    "own-head": {"share": "embeddings"},
    "scaled-head": {"scale_head": True},
    "two-vocabularies": {"share": "decoder", "source_vocab": 19, "head_bias": True},
}

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str = "sinusoidal", **changes: Any) -> Transformer:
    """In float64, where two ways to compute the same differ by 1e-15; biases and gains off their starting values."""
    torch.manual_seed(0)
    config = TransformerConfig(**SMALL | VARIANTS[variant] | changes)
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 19, shape, generator=torch.Generator().manual_seed(seed))


def batch(source_lengths: list[int], target_lengths: list[int], width: int | None = None) -> Batch:
    """Pairs whose tokens depend on their row alone, so that a row can be had alone as well; `width` pads both sides."""
    n, S, T = len(source_lengths), width or max(source_lengths), width or max(target_lengths)
    source, target, labels = torch.full((n, S), PAD), torch.full((n, T), PAD), torch.full((n, T), IGNORE)
    for row, (m, k) in enumerate(zip(source_lengths, target_lengths)):
        if m:
            source[row, :m] = tokens(29, seed=m)[:m]
        labels[row, :k] = tokens(29, seed=97 * k)[:k]
        target[row, :k] = torch.cat([torch.tensor([BOS]), labels[row, : k - 1]])
    return Batch(source, torch.arange(S) < torch.tensor(source_lengths)[:, None], target, labels)


def exactly(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


# What it is made of


def test_the_paper_counts_65_million() -> None:
    """Base: 37000 · 512 embeddings shared thrice; an encoder block of 4 D² + 2 D F products, a decoder block of 8 D² +
    2 D F; and the biases and norms, here with one more norm at the end of either stack, as pre-norm wants."""
    D, F = 512, 2048
    attention, feed_forward, norm = 4 * D * D + 4 * D, 2 * D * F + F + D, 2 * D
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    with torch.device("meta"):
        model = Transformer(TransformerConfig())
    n = sum(p.numel() for p in model.parameters())
    assert n == 37000 * D + 6 * (encoder + decoder) + 2 * norm
    assert n == pytest.approx(65e6, rel=0.05)


@pytest.mark.parametrize(("share", "n_tables"), [("none", 3), ("decoder", 2), ("embeddings", 2), ("all", 1)])
def test_shared_tables_are_one_parameter(share: str, n_tables: int) -> None:
    model = build(share=share)
    tables = [p for p in model.parameters() if p.shape == (V, 12)]
    assert len(tables) == n_tables
    assert (model.unembedding.weight is model.target_embedding.weight) == (share in ("decoder", "all"))
    assert (model.source_embedding is model.target_embedding) == (share in ("embeddings", "all"))


def test_a_scaled_head_reads_less() -> None:
    loud, pairs = build(), batch([S], [T])
    quiet = build(scale_head=True)
    exactly(quiet(pairs) * 12**0.5, loud(pairs))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_heads": 5}, "d_model = 12 must be a multiple of n_heads = 5"),
        ({"n_kv_heads": 2}, "n_heads = 3 must be a multiple of n_kv_heads = 2"),
        ({"n_kv_heads": 0}, "n_kv_heads = 0 is too small: it must be greater than 0"),
        ({"positions": {"kind": "t5", "n_buckets": 3}}, "positions] n_buckets = 3 is too small"),
        (
            {"positions": {"kind": "t5", "max_distance": 16}},
            "max_distance = 16 must be greater than half of n_buckets = 32",
        ),
        ({"source_vocab": 19}, "one vocabulary for both languages"),
        ({"source_vocab": 19, "share": "embeddings"}, 'share = "embeddings" needs one vocabulary for both languages'),
        ({"n_heads": 4, "positions": {"kind": "rotary"}}, "heads of even width, not 3; set d_head"),
    ],
)
def test_sizes_that_do_not_fit_are_said(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TransformerConfig.parse(SMALL | changes, "copy.toml: [model]")


# Invariance


@every_variant
def test_future_tokens_cannot_matter(variant: str) -> None:
    model, pairs = build(variant), batch([S] * B, [T] * B)
    logits = model(pairs)
    for t in range(1, T):
        changed = pairs.target.clone()
        changed[:, t:] = tokens(B, T - t, seed=t)
        memory = model.encode(pairs.source, pairs.source_mask)
        others = model.head(model.decode(changed, memory, pairs.source_mask))
        exactly(others[:, :t], logits[:, :t])
        assert not others[:, t:].allclose(logits[:, t:])


@every_variant
def test_the_future_has_no_gradient_and_the_past_has(variant: str) -> None:
    model, pairs = build(variant), batch([S], [T])
    memory = model.encode(pairs.source, None)
    embedded = model.target_embedding(pairs.target).detach().requires_grad_()
    model.target_embedding.forward = lambda _: embedded  # type: ignore[method-assign, assignment]
    hidden = model.decode(pairs.target, memory, None)
    for t in range(T):
        (slope,) = torch.autograd.grad(hidden[0, t, 0], embedded, retain_graph=True)
        assert slope[0].abs().sum(-1).bool().tolist() == [s <= t for s in range(T)]


@every_variant
def test_what_stands_in_the_padding_cannot_matter(variant: str) -> None:
    model, pairs = build(variant), batch([S, 4, 1], [T, 2, 3])
    logits = model(pairs)
    source = pairs.source.masked_fill(~pairs.source_mask, 17)
    real = pairs.labels != IGNORE
    target = pairs.target.masked_fill(~real, 11)
    others = model(Batch(source, pairs.source_mask, target, pairs.labels))
    exactly(others[real], logits[real])


@every_variant
def test_batch_equals_singles_and_more_padding_changes_nothing(variant: str) -> None:
    model, lengths = build(variant), ([S, 4, 1], [2, T, 3])
    together, padded = model(batch(*lengths)), model(batch(*lengths, width=13))
    for row, (m, k) in enumerate(zip(*lengths)):
        alone = model(batch([m], [k]))[0]
        exactly(together[row, :k], alone)
        exactly(padded[row, :k], alone)


def test_an_empty_source_is_finite_and_so_are_its_gradients() -> None:
    model, pairs = build(), batch([0, S], [T, T])
    model(pairs).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_order_is_known_by_position_alone() -> None:
    """Without positions the encoder sees a bag of words: permute the source and the memory is permuted."""
    order, source = torch.tensor([3, 0, 6, 2, 5, 1, 4]), tokens(B, S)
    for variant in ("none", "sinusoidal", "rotary", "t5"):
        model = build(variant)
        moved, still = model.encode(source[:, order], None), model.encode(source, None)[:, order]
        assert moved.allclose(still) == (variant == "none")


def test_the_core_is_a_choice_of_speed_alone() -> None:
    fused, pairs = build("t5"), batch([S, 4, 1], [T, 2, 3])
    core = RecordingCore(PlainCore())
    plain = Transformer(fused.config, core).double().eval()
    plain.load_state_dict(fused.state_dict())
    exactly(plain(pairs), fused(pairs))
    assert [tuple(looks.shape) for looks in core.record] == [(B, 3, S, S)] * 2 + [(B, 3, T, T), (B, 3, T, S)] * 2


# Decoding step by step


@every_variant
def test_cached_steps_equal_one_pass(variant: str) -> None:
    model, pairs = build(variant), batch([S, 4, 1], [T, T, T])
    whole, state = model(pairs), model.start(pairs.source, pairs.source_mask)
    for t in range(T):
        logits, state = model.step(pairs.target[:, t : t + 1], state)
        exactly(logits[:, 0], whole[:, t])


Tree = list[tuple[list[list[int]] | None, list[int] | None]]

TREES: dict[str, Tree] = {
    # Before each step: the branches that go on, for each sentence, and the sentences that stay.
    "as a beam search": [
        (None, None),
        ([[0, 0, 0]] * 3, None),
        ([[2, 0, 0, 1, 2], [0, 1, 2, 2, 1], [1, 1, 1, 1, 1]], None),
        ([[4, 0], [3, 3]], [2, 0]),
        ([[1], [0]], None),
        ([[0, 0, 0], [0, 0, 0]], [1, 0]),
    ],
    "as sampling": [([[0, 0]] * 3, None), (None, None), (None, [0, 2]), (None, None)],
}


@every_variant
@pytest.mark.parametrize("shape", TREES)
def test_every_branch_of_a_tree_equals_its_path_alone(variant: str, shape: str) -> None:
    model, pairs = build(variant), batch([S, 4, 1], [T, T, T])
    state = model.start(pairs.source, pairs.source_mask)
    rows, paths = [0, 1, 2], [[[]], [[]], [[]]]  # type: list[int], list[list[list[int]]]
    for depth, (parents, stay) in enumerate(TREES[shape]):
        if stay is not None:
            state.keep(torch.tensor(stay))
            rows, paths = [rows[i] for i in stay], [paths[i] for i in stay]
        if parents is not None:
            state.reorder(torch.tensor(parents))
            paths = [[list(old[p]) for p in chosen] for old, chosen in zip(paths, parents)]
        new = tokens(len(rows), len(paths[0]), seed=depth)
        logits, state = model.step(new, state)
        for i, row in enumerate(rows):
            for w, path in enumerate(paths[i]):
                path.append(int(new[i, w]))
                source, mask = pairs.source[row : row + 1], pairs.source_mask[row : row + 1]
                alone = model.decode(torch.tensor([path]), model.encode(source, mask), mask)
                exactly(logits[i, w], model.head(alone)[0, -1])


# Learning


@every_variant
def test_every_parameter_receives_a_gradient(variant: str) -> None:
    model = build(variant).train()
    Translation(TranslationConfig())(model, batch([S, 4], [T, 3])).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_a_model_learns_to_reverse() -> None:
    """Of the 2401 strings of four letters out of seven it sees 2000, and then reverses the rest without a fault."""
    torch.manual_seed(0)
    strings = torch.cartesian_prod(*[torch.arange(3, 10)] * 4)[torch.randperm(7**4)]
    seen, unseen = strings[:2000], strings[2000:]
    size = {"source_vocab": 10, "target_vocab": 10, "n_encoder_layers": 1, "n_decoder_layers": 1}
    model = Transformer(TransformerConfig(**SMALL | size | {"d_model": 32, "d_ff": 64, "n_heads": 2}))
    objective = Translation(TranslationConfig(label_smoothing=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    gentler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=240)
    for step in range(240):
        loss = objective(model, reversals(seen[50 * step % 2000 :][:50]))
        optimizer.zero_grad()
        (loss.total / loss.n_tokens).backward()
        optimizer.step()
        gentler.step()

    pairs, n = reversals(unseen), len(unseen)
    with torch.inference_mode():
        state = model.eval().start(pairs.source, None)
        found = sample(model, state, torch.full((n,), BOS), EOS, torch.full((n,), 9), greedy)
    assert [hypothesis.tokens for [hypothesis] in found] == unseen.flip(1).tolist()


def reversals(strings: Tensor) -> Batch:
    source, backwards = F.pad(strings, (0, 1), value=EOS), strings.flip(1)
    return Batch(source, source > 0, F.pad(backwards, (1, 0), value=BOS), F.pad(backwards, (0, 1), value=EOS))
