from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.errors import ConfigError
from clearformer.generation.decode import sample
from clearformer.generation.sampling import greedy
from clearformer.layers.attention import PlainCore
from clearformer.layers.backends import RecordingCore
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.verbs.inspect import inspect

B, T, V = 3, 7, 23

SMALL: dict[str, Any] = {
    "vocab": V, "n_layers": 2, "d_model": 12, "d_ff": 17, "n_heads": 3, "max_length": 31, "dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "norm": "rms", "norm_eps": 1e-5, "activation": "swiglu", "bias": False,
    "positions": {"kind": "rotary", "base": 500.0},
}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt": {"residual": "post"},
    "llama": {**LLAMA, "n_heads": 6, "n_kv_heads": 2, "tied": False},
    "wide-heads": {**LLAMA, "d_head": 10, "n_kv_heads": 1},
    "sinusoidal": {"positions": {"kind": "sinusoidal"}, "scale_embedding": True, "head_bias": True},
    "alibi": {"positions": {"kind": "alibi"}},
    "t5": {"positions": {"kind": "t5", "n_buckets": 6, "max_distance": 5}},
}

SIZES = {
    "gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str = "gpt2", **changes: Any) -> GPT:
    """In float64, where two ways to compute the same differ by 1e-15; every parameter off its quiet beginning."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SMALL | VARIANTS[variant] | changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def text(*lengths: int) -> list[Tensor]:
    """A text of each length, told apart by its first token."""
    draw = torch.Generator().manual_seed(0)
    return [torch.cat([torch.tensor([i]), torch.randint(V, (n - 1,), generator=draw)]) for i, n in enumerate(lengths)]


def read(model: GPT, tokens: Tensor, **fields: Any) -> Tensor:
    return model(TextBatch(tokens, tokens, **fields))


def exactly(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


# What it is made of


@pytest.mark.parametrize(("name", "size"), [*SIZES.items(), ("gpt3-175b", pytest.approx(174.9e9, abs=0.3e9))])
def test_presets_have_their_published_sizes(name: str, size: Any) -> None:
    """Brown et al. 2020 say 175 billion; the others are known to the last parameter."""
    assert inspect(name, 2)["parameters"] == size


def test_transformers_counts_the_same() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

    with torch.device("meta"):
        theirs: dict[str, Any] = {
            "gpt": OpenAIGPTLMHeadModel(OpenAIGPTConfig()),
            "gpt2": GPT2LMHeadModel(GPT2Config()),
            "gpt2-medium": GPT2LMHeadModel(GPT2Config(n_layer=24, n_embd=1024, n_head=16)),
            "gpt2-large": GPT2LMHeadModel(GPT2Config(n_layer=36, n_embd=1280, n_head=20)),
            "gpt2-xl": GPT2LMHeadModel(GPT2Config(n_layer=48, n_embd=1600, n_head=25)),
        }
    assert {name: sum(p.numel() for p in model.parameters()) for name, model in theirs.items()} == SIZES


def test_a_name_is_a_preset_before_it_is_a_kind() -> None:
    """`gpt` is the model of 2018; the defaults of the kind are GPT-2's."""
    names = [layer["name"] for layer in inspect("gpt", 2)["layers"]]
    assert "decoder.norm" not in names
    with torch.device("meta"):
        n = sum(parameter.numel() for parameter in GPT(GPTConfig()).parameters())
    assert n == 124_439_808


def test_weights_begin_as_gpt_2s() -> None:
    """N(0, 0.02²) everywhere but where blocks add to the residual stream: there 0.02/√(2L). Biases 0, gains 1."""
    torch.manual_seed(0)
    L, D = 8, 96
    model = GPT(GPTConfig(vocab=499, n_layers=L, d_model=D, d_ff=4 * D, n_heads=3, max_length=211, tied=False))
    quiet = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == float(name.endswith("norm.weight"))).all(), name
            continue
        residual = name.endswith(("attn.out.weight", "mlp.down.weight"))
        quiet += residual
        # The estimate of a deviation from n draws errs by σ/√(2n): five of those.
        wanted, slack = 0.02 / sqrt(2 * L) if residual else 0.02, 5 / sqrt(2 * parameter.numel())
        assert parameter.std().item() == pytest.approx(wanted, rel=slack), name
        assert abs(parameter.mean().item()) < 5 * wanted / sqrt(parameter.numel()), name
    assert quiet == 2 * L


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_is_the_embedding(tied: bool) -> None:
    model = build(tied=tied)
    assert (model.unembedding.weight is model.embedding.weight) == tied
    assert ("unembedding.weight" in dict(model.named_parameters())) != tied


def test_shared_key_heads_equal_the_same_heads_written_out() -> None:
    """Three groups of two query heads: as if each of the six had its group's keys and values."""
    shared = build("llama", n_heads=6, n_kv_heads=3)
    full = build("llama", n_heads=6, n_kv_heads=6)
    weights = shared.state_dict()
    for name, tensor in weights.items():
        if name.endswith("qkv.weight"):
            q, k, v = tensor.split([12, 6, 6])
            k, v = (x.unflatten(0, (3, 2)).repeat_interleave(2, dim=0).flatten(0, 1) for x in (k, v))
            weights[name] = torch.cat([q, k, v])
    full.load_state_dict(weights)
    tokens = torch.stack(text(T, T))
    exactly(read(shared, tokens), read(full, tokens))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_heads": 5}, "d_model = 12 must be a multiple of n_heads = 5"),
        ({"n_kv_heads": 2}, "n_heads = 3 must be a multiple of n_kv_heads = 2"),
        ({"n_heads": 4, "positions": {"kind": "rotary"}}, "heads of even width, not 3; set d_head"),
        ({"source_vocab": 19}, "unknown key `source_vocab`"),
    ],
)
def test_sizes_that_do_not_fit_are_said(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        GPTConfig.parse(SMALL | changes, "poems.toml: [model]")


# Invariance


@every_variant
def test_future_tokens_cannot_matter(variant: str) -> None:
    model, tokens = build(variant), torch.stack(text(T, T, T))
    logits = read(model, tokens)
    for t in range(1, T):
        changed = tokens.clone()
        changed[:, t:] = (tokens[:, t:] + t) % V
        others = read(model, changed)
        exactly(others[:, :t], logits[:, :t])
        assert not others[:, t:].allclose(logits[:, t:])


@every_variant
def test_packed_documents_equal_separate_ones(variant: str) -> None:
    """Two rows of three and two documents, the last of the second followed by padding."""
    model, texts = build(variant), text(2, 3, 4, 5, 3)
    pad = torch.zeros(1, dtype=torch.long)
    rows = [[texts[0], texts[1], texts[2]], [texts[3], texts[4], pad]]
    tokens = torch.stack([torch.cat(row) for row in rows])
    documents = torch.stack([torch.cat([torch.full_like(one, i) for i, one in enumerate(row)]) for row in rows])
    positions = torch.stack([torch.cat([torch.arange(len(one)) for one in row]) for row in rows])
    packed = read(model, tokens, documents=documents, positions=positions)
    ends = [(0, 2), (2, 5), (5, 9)], [(0, 5), (5, 8)]
    found = [packed[row, a:b] for row, spans in enumerate(ends) for a, b in spans]
    for one, logits in zip(texts, found):
        exactly(logits, read(model, one[None])[0])


@every_variant
def test_gradients_do_not_cross_documents(variant: str) -> None:
    model, tokens = build(variant), torch.cat(text(2, 3, 2))[None]
    documents, positions = torch.tensor([[5, 5, 0, 0, 0, 7, 7]]), torch.tensor([[0, 1, 0, 1, 2, 0, 1]])
    embedded = model.embedding(tokens).detach().requires_grad_()
    model.embedding.forward = lambda _: embedded  # type: ignore[method-assign, assignment]
    hidden = model.hidden(TextBatch(tokens, tokens, documents, positions))
    for t in range(7):
        (slope,) = torch.autograd.grad(hidden[0, t, 0], embedded, retain_graph=True)
        seen = [s <= t and bool(documents[0, s] == documents[0, t]) for s in range(7)]
        assert slope[0].abs().sum(-1).bool().tolist() == seen


@every_variant
def test_gradients_of_a_prefix_go_both_ways_within_its_document(variant: str) -> None:
    """Three documents of 3, 3 and 1 tokens, of which 2, 1 and none are prefix."""
    model, tokens = build(variant, prompt="full"), torch.cat(text(3, 3, 1))[None]
    documents, positions = torch.tensor([[5, 5, 5, 0, 0, 0, 7]]), torch.tensor([[0, 1, 2, 0, 1, 2, 0]])
    prefix = torch.tensor([[1, 1, 0, 1, 0, 0, 0]]).bool()
    embedded = model.embedding(tokens).detach().requires_grad_()
    model.embedding.forward = lambda _: embedded  # type: ignore[method-assign, assignment]
    hidden = model.hidden(TextBatch(tokens, tokens, documents, positions, prefix))
    for t in range(7):
        (slope,) = torch.autograd.grad(hidden[0, t, 0], embedded, retain_graph=True)
        seen = [bool((s <= t or prefix[0, s]) and documents[0, s] == documents[0, t]) for s in range(7)]
        assert slope[0].abs().sum(-1).bool().tolist() == seen


def test_the_core_is_a_choice_of_speed_alone() -> None:
    fused, tokens = build("llama"), torch.stack(text(T, T))
    core = RecordingCore(PlainCore())
    plain = GPT(fused.config, core).double().eval()
    plain.load_state_dict(fused.state_dict())
    exactly(read(plain, tokens), read(fused, tokens))
    assert [tuple(looks.shape) for looks in core.record] == [(2, 6, T, T)] * 2
    assert not torch.stack(core.record).triu(1).any()


# Decoding step by step


@every_variant
@pytest.mark.parametrize("n", [0, 1, 4])
def test_steps_after_a_prompt_equal_one_pass(variant: str, n: int) -> None:
    model, tokens = build(variant), torch.stack(text(T, T, T))
    whole, state = read(model, tokens), model.start(tokens[:, :n], None)
    for t in range(n, T):
        logits, state = model.step(tokens[:, t : t + 1], state)
        exactly(logits[:, 0], whole[:, t])


@every_variant
def test_prompts_of_different_lengths_go_on_together_as_they_would_alone(variant: str) -> None:
    """One has nothing before its first step. After two steps the second text leaves, and the others branch."""
    model, lengths, texts = build(variant), [4, 1, 0], text(10, 10, 10)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]  # a column more than the longest needs
    prompts = torch.stack([one[:5] for one in texts]).masked_fill(~mask, 22)
    state, paths, rows = model.start(prompts, mask), [one[:n].tolist() for one, n in zip(texts, lengths)], [0, 1, 2]

    def check(logits: Tensor, i: int, w: int, path: list[int]) -> None:
        exactly(logits[i, w], read(model, torch.tensor([path]))[0, -1])

    for _ in range(2):
        new = torch.tensor([[int(texts[row][len(paths[row])])] for row in rows])
        logits, state = model.step(new, state)
        for i, row in enumerate(rows):
            paths[row].append(int(new[i, 0]))
            check(logits, i, 0, paths[row])
    state.keep(torch.tensor([0, 2]))
    state.reorder(torch.zeros(2, 2, dtype=torch.long))
    new = torch.tensor([[3, 5], [7, 11]])
    logits, state = model.step(new, state)
    state.reorder(torch.tensor([[1, 1], [0, 1]]))
    again = torch.tensor([[13, 17], [19, 2]])
    later, state = model.step(again, state)
    for i, row in enumerate([0, 2]):
        for w in range(2):
            check(logits, i, w, [*paths[row], int(new[i, w])])
            parent = [[1, 1], [0, 1]][i][w]
            check(later, i, w, [*paths[row], int(new[i, parent]), int(again[i, w])])


@every_variant
@pytest.mark.parametrize("n", [1, 4])
def test_a_prompt_that_is_read_both_ways_is_a_prefix(variant: str, n: int) -> None:
    """Alone, and beside a longer one."""
    model, tokens = build(variant, prompt="full"), torch.stack(text(T, T))
    whole = read(model, tokens, context=(torch.arange(T) < n).expand(2, -1))
    mask = torch.arange(5) < torch.tensor([[n], [5]])
    for state in (model.start(tokens[:1, :n], None), model.start(tokens[:, :5].masked_fill(~mask, 22), mask)):
        for t in range(n, T):
            logits, state = model.step(tokens[: len(state.next), t : t + 1], state)
            exactly(logits[0, 0], whole[0, t])


# Learning


@every_variant
def test_every_parameter_receives_a_gradient(variant: str) -> None:
    model, tokens = build(variant).train(), torch.stack(text(T, T))
    CausalLM(CausalLMConfig())(model, TextBatch(tokens, tokens)).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("variant", ["gpt2", "llama"])
def test_a_model_learns_to_repeat(variant: str) -> None:
    """Of the 343 strings a b c it sees 300, as "a b c 1 a b c 2", and then goes on from the other "a b c 1"s."""
    torch.manual_seed(0)
    strings = torch.cartesian_prod(*[torch.arange(3, 10)] * 3)[torch.randperm(7**3)]
    one = torch.ones(len(strings), 1, dtype=torch.long)
    whole = torch.cat([strings, one, strings, 2 * one], dim=1)
    labels = torch.where(torch.arange(1, 8) > 3, whole[:, 1:], IGNORE)  # the first three are anybody's guess
    changes = {"vocab": 10, "d_model": 24, "d_ff": 48, "n_heads": 2, "n_kv_heads": None}
    model = GPT(GPTConfig(**SMALL | VARIANTS[variant] | changes))
    objective, optimizer = CausalLM(CausalLMConfig()), torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(150):
        rows = slice(50 * step % 300, 50 * step % 300 + 50)
        loss = objective(model, TextBatch(whole[rows, :-1], labels[rows]))
        optimizer.zero_grad()
        (loss.total / loss.n_tokens).backward()
        optimizer.step()
    unseen = strings[300:]
    with torch.inference_mode():
        state = model.eval().start(unseen, None)
        found = sample(model, state, one[300:, 0], 2, torch.full((len(unseen),), 9), greedy)
    assert [hypothesis.tokens for [hypothesis] in found] == unseen.tolist()
