"""What a Lens sees and changes: on every model, in decoding, with LoRA and prefixes."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.errors import ConfigError
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.engine import Decoder, finished
from clearformer.layers.attention import MultiHeadAttention, PlainCore
from clearformer.layers.backends import innermost
from clearformer.layers.cells import CELLS
from clearformer.layers.recurrent import Unrolled, recurrent
from clearformer.lens.patches import add, mean_heads, mean_units, replace, scale, zero_heads, zero_units
from clearformer.lens.points import points
from clearformer.lens.session import Lens
from clearformer.models import MODELS
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.tuning.adapters import add_lora, merge
from clearformer.tuning.lora import LoraConfig
from clearformer.tuning.prefix import PrefixConfig, add_prefix

from ..models.test_contract import batch_for, build

every_model = pytest.mark.parametrize("name", MODELS.names())
WITH_ATTENTION = ("transformer", "gpt", "bert", "classifier", "t5", "vit", "speech-transformer")


def ready(name: str) -> tuple[Any, Any]:
    model = build(name).eval()
    return model, batch_for(model)


def same(a: Any, b: Any) -> bool:
    """Whether two outputs of a model are equal, bit by bit."""
    return a.equal(b) if isinstance(a, Tensor) else all(same(x, y) for x, y in zip(a, b, strict=True))


def is_clean(model: nn.Module) -> bool:
    return all(
        not module._forward_hooks and not module._forward_pre_hooks and "run" not in vars(module)
        for module in model.modules()
    )


@every_model
@torch.no_grad()
def test_reading_everything_changes_no_bit_and_leaves_nothing_behind(name: str) -> None:
    model, batch = ready(name)
    cores = [module.core for module in model.modules() if isinstance(module, MultiHeadAttention)]
    before = model(batch)
    with Lens(model, keep=["*"]) as look:
        during = model(batch)
    assert same(before, during)
    assert len(list(look)) > 5
    assert is_clean(model)
    assert cores == [module.core for module in model.modules() if isinstance(module, MultiHeadAttention)]


@pytest.mark.parametrize("name", WITH_ATTENTION)
@torch.no_grad()
def test_patterns_beside_the_fused_kernel_are_those_of_the_equation(name: str) -> None:
    """softmax(q k' · scale + bias) over the keys that the mask allows, written out here; all heads and some.

    float32 keeps both within 1e-6 of each other.
    """
    model, batch = ready(name)
    names = [name for name in points(model) if name.endswith(".pattern")]
    with Lens(model, keep=[*names, *(f"{name.removesuffix('pattern')}scores[3,1]" for name in names)]) as look:
        model(batch)
    seen: dict[str, Any] = {}
    for path, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.core = Watched(seen, path)
    model(batch)
    assert len(names) == len(seen) > 0
    for each in names:
        q, k, mask, bias, factor = seen[each]
        scores = q @ k.repeat_interleave(q.size(1) // k.size(1), dim=1).mT * factor  # heads may share their keys
        scores = scores if bias is None else scores + bias
        allowed = torch.ones((), dtype=torch.bool) if mask is None else mask
        expected = (
            scores.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0)
        )  # a row without keys has no weights
        assert (look[each] - expected).abs().max() <= 1e-6
        chosen = look[f"{each.removesuffix('pattern')}scores"]
        is_seen = allowed.expand_as(scores)[:, [1, 3]]
        torch.testing.assert_close(chosen[is_seen], scores[:, [1, 3]][is_seen])


class Watched(PlainCore):
    """The equation, and what it is computed from."""

    def __init__(self, seen: dict[str, Any], path: str) -> None:
        self.seen, self.path = seen, path

    def __call__(self, q: Any, k: Any, v: Any, mask: Any, bias: Any, scale: Any, dropout: Any) -> Tensor:
        self.seen[f"{self.path}.pattern"] = q, k, mask, bias, scale
        return super().__call__(q, k, v, mask, bias, scale, dropout)


@torch.no_grad()
def test_names_of_a_decoder_block() -> None:
    model, batch = ready("transformer")
    keep = [f"decoder.blocks.1.{leaf}" for leaf in ("resid_pre", "attn_out", "resid_mid", "cross_out", "resid_cross")]
    keep += ["decoder.blocks.1.mlp_out", "decoder.blocks.1.resid_post", "decoder.blocks.2.resid_pre"]
    with Lens(model, keep=[*keep, "decoder.blocks.1.*.z", "decoder.blocks.1.mlp.hidden"]) as look:
        model(batch)
    pre, attn, mid, cross, crossed, mlp, post, following = (look[name] for name in keep)
    torch.testing.assert_close(pre + attn, mid)
    torch.testing.assert_close(mid + cross, crossed)
    torch.testing.assert_close(crossed + mlp, post)
    assert following.equal(post)
    block = model.decoder.blocks[1]
    torch.testing.assert_close(block.mlp.down(look["decoder.blocks.1.mlp.hidden"]), mlp)
    torch.testing.assert_close(block.cross.out(look["decoder.blocks.1.cross.z"].transpose(1, 2).flatten(2)), cross)


@pytest.mark.parametrize("name", ["transformer", "gpt", "bert", "t5", "vit"])
@torch.no_grad()
def test_switching_a_head_off_equals_zero_columns_of_the_output_matrix(name: str) -> None:
    model, batch = ready(name)
    path, layer = [(p, m) for p, m in model.named_modules() if isinstance(m, MultiHeadAttention)][-1]
    before = model(batch)
    with Lens(model, put={f"{path}.z": zero_heads(1, 3)}):
        ablated = model(batch)
    for head in (1, 3):
        layer.out.weight[:, head * layer.d_value : (head + 1) * layer.d_value] = 0
    torch.testing.assert_close(ablated, model(batch))
    assert not ablated.equal(before)


@every_model
@torch.no_grad()
def test_everything_inside_another_run_gives_its_output(name: str) -> None:
    """Everything but the output itself, which the last layer computes from what is put in place."""
    model, batch = ready(name)
    other = other_of(batch)
    inner = {n for n, point in points(model).items() if point.place in ("input", "output", "second")}
    with Lens(model, keep=inner) as look:
        expected = model(other)
    outputs = [expected] if isinstance(expected, Tensor) else list(expected)
    put = {each: in_turn(look.kept[each]) for each in look if not is_one_of(look.kept[each], outputs)}
    assert 1 < len(put) < len(list(look))
    assert not same(model(batch), expected)
    with Lens(model, put=put):
        assert same(model(batch), expected)


@pytest.mark.parametrize("name", WITH_ATTENTION)
@torch.no_grad()
def test_the_inputs_of_a_later_block_decide_the_output(name: str) -> None:
    """Of every block, with the memory of a decoder. One position is not enough, nor is a decoder without its memory."""
    model, batch = ready(name)
    with Lens(model, keep=["*resid_pre", "*.out"]) as look:
        expected = model(other_of(batch))
    last = max((name for name in look if name.endswith("resid_pre")), key=list(look).index)
    stack = last.rpartition(".blocks.")[0]
    memory = ["encoder.out"] if stack == "decoder" and "encoder.out" in look else []  # as decoders read it
    blocks = [name for name in look if name.startswith(f"{stack}.") and name.endswith("resid_pre")]
    assert len(blocks) > 1
    for block in blocks[1:]:
        put = {each: replace(look[each]) for each in [block, *memory]}
        with Lens(model, put=put):
            assert same(model(batch), expected)
        with Lens(model, put={**put, block: replace(look[block], at=[0])}):
            assert not same(model(batch), expected)
        if memory:
            with Lens(model, put={block: put[block]}):
                assert not same(model(batch), expected)


def other_of(batch: Any) -> Any:
    return type(batch)(**{key: moved(key, value) for key, value in vars(batch).items()})


def is_one_of(values: list[Tensor], outputs: list[Tensor]) -> bool:
    """Whether the activation is an output of the model, in whatever shape."""
    return any(value.flatten().equal(output.flatten()) for value in values for output in outputs)


def moved(key: str, value: Any) -> Any:
    if key in ("source", "tokens", "target"):
        return (value + 1) % 20 + 3
    return value * 0.5 + 0.1 if key in ("pixels", "sounds") else value


def in_turn(values: list[Tensor]) -> Any:
    rest = iter(values)
    return lambda value, name: next(rest)


@torch.no_grad()
def test_a_frozen_pattern_and_changed_scores() -> None:
    model, batch = ready("gpt")
    name = "decoder.blocks.1.attn.pattern"
    with Lens(model, keep=[name, "*.z"]) as look:
        before = model(batch)
    with Lens(model, put={name: replace(look[name])}):
        torch.testing.assert_close(model(batch), before)
    uniform = torch.full_like(look[name], 1 / look[name].size(-1))
    with Lens(model, keep=["decoder.blocks.1.attn.*"], put={name: replace(uniform)}) as changed:
        assert not model(batch).equal(before)
    torch.testing.assert_close(
        changed["decoder.blocks.1.attn.z"],
        changed["decoder.blocks.1.attn.v"].mean(2, keepdim=True).expand_as(changed["decoder.blocks.1.attn.z"]),
    )
    with Lens(model, put={"decoder.blocks.1.attn.scores": scale(1.0)}):
        torch.testing.assert_close(model(batch), before)


@torch.no_grad()
def test_only_the_layer_whose_scores_are_changed_leaves_the_fused_kernel() -> None:
    model, batch = ready("gpt")
    cores = [innermost(block.attn.core) for block in model.decoder.blocks]
    with Lens(model, put={"decoder.blocks.1.attn.scores": scale(2.0)}):
        now = [block.attn.core for block in model.decoder.blocks]
        model(batch)
    assert [core is other for core, other in zip(cores, now)] == [True, False, True]


@torch.no_grad()
def test_steering_replacing_and_units() -> None:
    model, batch = ready("gpt")
    vector = torch.arange(10.0)
    with Lens(model, keep=["decoder.blocks.0.resid_post"]) as look:
        model(batch)
    plain = look["decoder.blocks.0.resid_post"]
    with Lens(model, keep=["*.0.resid_post"], put={"decoder.blocks.0.resid_post": add(vector, at=[2])}) as look:
        model(batch)
    expected = plain.clone()
    expected[:, 2] += vector
    torch.testing.assert_close(look["decoder.blocks.0.resid_post"], expected)
    with Lens(model, keep=["*.0.mlp.hidden"], put={"decoder.blocks.0.mlp.hidden": zero_units(5, 7)}) as look:
        model(batch)
    hidden = look["decoder.blocks.0.mlp.hidden"]
    assert hidden[..., [5, 7]].eq(0).all()
    assert hidden[..., [4, 6]].ne(0).any()
    with Lens(model, keep=["*.0.mlp.hidden"]) as look:
        model(batch)
    plain = look["decoder.blocks.0.mlp.hidden"]
    with Lens(model, keep=["*.0.mlp.hidden"], put={"decoder.blocks.0.mlp.hidden": mean_units(plain, 5)}) as look:
        model(batch)
    hidden = look["decoder.blocks.0.mlp.hidden"]
    torch.testing.assert_close(hidden[..., 5], plain[..., 5].mean().expand_as(hidden[..., 5]))
    assert hidden[..., 4].equal(plain[..., 4])


@torch.no_grad()
def test_a_head_replaced_by_its_mean_says_the_same_everywhere() -> None:
    model, batch = ready("gpt")
    with Lens(model, keep=["*.1.attn.z"]) as look:
        model(batch)
    z = look["decoder.blocks.1.attn.z"]
    with Lens(model, keep=["*.1.attn.z"], put={"*.1.attn.z": mean_heads(z, 2)}) as look:
        model(batch)
    after = look["decoder.blocks.1.attn.z"]
    torch.testing.assert_close(after[:, 2], z[:, 2].mean((0, 1)).expand_as(after[:, 2]))
    assert after[:, 1].equal(z[:, 1])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("is_bidirectional", [False, True])
@torch.no_grad()
def test_states_and_gates_of_recurrent_layers(cell: str, is_bidirectional: bool) -> None:
    """The states are the outputs of the layer, with rows of different lengths."""
    torch.manual_seed(0)
    net = nn.ModuleDict({"layers": recurrent(cell, 5, 7, 2, is_bidirectional)})
    module: Any = net["layers"]
    x, lengths = torch.randn(3, 11, 5), torch.tensor([11, 4, 7])
    with Lens(net, keep=["*"]) as look:
        y, _ = module(x, None, lengths)
    last = look["layers.l1.h"]
    read = torch.tanh(last) if cell == "rnn-notes" else last
    real = (torch.arange(11) < lengths[:, None])[:, :, None]
    torch.testing.assert_close((read * real), y[..., :7])
    for gate in CELLS[cell].gate_names:
        assert look[f"layers.l0.{gate}"].shape == (3, 11, 7)
        if gate != "candidate":
            assert look[f"layers.l0.{gate}"].min() > 0
            assert look[f"layers.l0.{gate}"].max() < 1
    assert (f"layers.l0_reverse.{CELLS[cell].gate_names[0]}" in look) is is_bidirectional


@torch.no_grad()
def test_a_gate_that_is_closed_keeps_the_memory() -> None:
    torch.manual_seed(0)
    model = RNN(RNNConfig(vocab=23, n_layers=1, d_model=7, cell="gru-simple", dropout=0)).eval()
    assert isinstance(model.layers, Unrolled)
    batch = batch_for(model)
    with Lens(model, keep=["layers.*"], put={"layers.l0.update": scale(0.0)}) as look:
        model(batch)
    assert look["layers.l0.h"].eq(0).all()
    lstm = RNN(RNNConfig(vocab=23, n_layers=1, d_model=7, cell="lstm", dropout=0)).eval()  # by torch's kernel
    with Lens(lstm, keep=["layers.*"], put={"layers.l0.output": scale(0.0)}) as look:
        lstm(batch)
    assert look["layers.l0.h"].eq(0).all()
    assert look["layers.l0.m"].ne(0).all()
    assert look["layers.out"].eq(0).all()


@torch.no_grad()
def test_decoding_is_seen_step_by_step_and_can_be_steered() -> None:
    model, batch = ready("transformer")
    decode = DecodeConfig(beam=2, min_length=5)
    first, limits = torch.full((2,), 1), torch.full((2,), 5)

    def translate() -> Any:
        return finished(Decoder(model).decode(batch.source, batch.source_mask, first, 2, limits, decode, 1))

    before = translate()
    with Lens(model, keep=["decoder.blocks.0.cross.pattern[0]", "unembedding.out"]) as look:
        assert [row[0].tokens for row in translate()] == [row[0].tokens for row in before]
    assert len(look["decoder.blocks.0.cross.pattern"]) == 5
    for step in look["decoder.blocks.0.cross.pattern"]:
        torch.testing.assert_close(step.sum(-1), torch.ones(step.shape[:-1]))
    favoured = torch.zeros(23)
    favoured[17] = 1e4
    with Lens(model, put={"unembedding.out": add(favoured)}):
        assert all(set(row[0].tokens) == {17} for row in translate())


@pytest.mark.parametrize("tuning", ["none", "lora", "prefix"])
@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_decoding_without_heads_is_decoding_with_edited_weights(tuning: str, beam: int) -> None:
    """The columns of the heads in the output matrices are 0. A batch with padding; merged weights in place of LoRA."""
    model, batch = ready("transformer")
    assert not batch.source_mask.all()
    torch.manual_seed(7)
    if tuning == "lora":
        add_lora(model, LoraConfig(rank=2))
    if tuning == "prefix":
        add_prefix(model, PrefixConfig(length=3))
    tuned = [parameter for name, parameter in model.named_parameters() if name.endswith(".B") or "prefix" in name]
    assert bool(tuned) is (tuning != "none")
    for parameter in tuned:
        nn.init.normal_(parameter, std=0.5)  # else it adds nothing
    model.eval()
    off = {"encoder.blocks.1.attn": (0, 3), "decoder.blocks.0.attn": (1,), "decoder.blocks.1.cross": (2, 4)}
    edited = deepcopy(model)
    if tuning == "lora":
        merge(edited)
    for path, heads in off.items():
        layer: Any = edited.get_submodule(path)
        for head in heads:
            layer.out.weight[:, head * layer.d_value : (head + 1) * layer.d_value] = 0
    n = len(batch.source)
    first, limits = torch.full((n,), 1), torch.full((n,), 11)

    def decode(network: nn.Module) -> list[list[Any]]:
        config = DecodeConfig(beam=beam, min_length=7)
        return finished(Decoder(network).decode(batch.source, batch.source_mask, first, 2, limits, config, beam))

    plain = decode(model)
    with Lens(model, put={f"{path}.z": zero_heads(*heads) for path, heads in off.items()}):
        ablated = decode(model)
    expected = decode(edited)
    assert [[one.tokens for one in row] for row in ablated] == [[one.tokens for one in row] for row in expected]
    for row, others in zip(ablated, expected, strict=True):
        assert [one.logprob for one in row] == pytest.approx([one.logprob for one in others], abs=1e-4)
    for row, others in zip(ablated, plain, strict=True):
        assert row[0].logprob != pytest.approx(others[0].logprob, abs=1e-2)


@torch.no_grad()
def test_a_prefix_shows_its_share_and_lora_is_seen() -> None:
    model, batch = ready("gpt")
    add_prefix(model, PrefixConfig(length=3))
    with Lens(model, keep=["*.pattern"]) as look:
        model(batch)
    assert look["decoder.blocks.0.attn.pattern"].shape[-1] == 3 + batch.tokens.size(1)
    torch.testing.assert_close(look["decoder.blocks.0.attn.pattern"].sum(-1), torch.ones(2, 5, 5))
    model, batch = ready("gpt")
    add_lora(model, LoraConfig(rank=2))
    before = model.eval()(batch)
    with Lens(model, keep=["*"]) as look:
        assert model(batch).equal(before)
    assert "decoder.blocks.0.attn.q" in look


@torch.no_grad()
def test_patches_with_lora_and_a_prefix() -> None:
    """A head that is off is zero columns of the merged weights; a prefix that nobody looks at is no prefix."""
    model, batch = ready("gpt")
    add_lora(model, LoraConfig(rank=2))
    for name, parameter in model.named_parameters():
        if name.endswith(".B"):
            nn.init.normal_(parameter, std=0.3)  # else it adds nothing
    plain = model.eval()(batch)
    with Lens(model, put={"decoder.blocks.1.attn.z": zero_heads(1, 3)}):
        ablated = model(batch)
    merge(model)
    torch.testing.assert_close(model(batch), plain)
    layer = model.decoder.blocks[1].attn
    for head in (1, 3):
        layer.out.weight[:, head * layer.d_value : (head + 1) * layer.d_value] = 0
    torch.testing.assert_close(model(batch), ablated)
    assert not torch.allclose(plain, ablated)

    model, batch = ready("gpt")
    without = model(batch)
    add_prefix(model, PrefixConfig(length=3))
    for name, parameter in model.named_parameters():
        if "prefix" in name:
            nn.init.normal_(parameter)

    def look_past(pattern: Tensor, name: str) -> Tensor:
        rest = pattern.clone()
        rest[..., :3] = 0
        return rest / rest.sum(-1, keepdim=True)

    assert not torch.allclose(model.eval()(batch), without)
    with Lens(model, put={"*.pattern": look_past}):
        torch.testing.assert_close(model(batch), without)


@torch.no_grad()
def test_a_patch_acts_on_each_row_of_a_batch_as_on_the_row_alone() -> None:
    model, batch = ready("gpt")
    put = {
        "*.0.attn.pattern": scale(0.5),
        "*.1.attn.z": zero_heads(2),
        "*.2.resid_pre": add(torch.arange(10.0), at=[1]),
    }
    with Lens(model, put=put):
        together = model(batch)
        for row in range(len(batch.tokens)):
            alone = model(type(batch)(batch.tokens[row : row + 1], batch.labels[row : row + 1], n_tokens=5))
            torch.testing.assert_close(alone[0], together[row])


def test_gradients_flow_to_what_is_kept() -> None:
    model, batch = ready("gpt")
    with Lens(model, keep=["decoder.blocks.0.resid_post"]) as look:
        loss = model(batch).logsumexp(-1).sum()
    (gradient,) = torch.autograd.grad(loss, look["decoder.blocks.0.resid_post"])
    assert gradient.abs().sum() > 0


def test_mistakes_are_explained_and_nothing_stays_behind() -> None:
    model, batch = ready("gpt")
    with pytest.raises(ConfigError, match=r"no activation is called `decoder\.blocks\.1\.attn\.patern`") as caught:
        Lens(model, keep=["decoder.blocks.1.attn.patern"])
    assert "decoder.blocks.1.attn.pattern" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="does not choose heads"):
        Lens(model, keep=["decoder.blocks.1.attn.pattern[a]"])
    with pytest.raises(ConfigError, match=r"decoder\.blocks\.1\.mlp_out has no heads"):
        Lens(model, keep=["decoder.blocks.1.mlp_out[0]"])
    with pytest.raises(ConfigError, match=r"attn\.z has no head 5") as caught, Lens(model, put={"*.z": zero_heads(5)}):
        model(batch)
    assert caught.value.hint == "choose from 0 to 4"
    with pytest.raises(ConfigError, match="its patch"), Lens(model, put={"*.z": lambda value, name: value[:1]}):
        model(batch)
    with Lens(model, keep=["*.z"]) as look:
        pass
    with pytest.raises(ConfigError, match="was kept but did not occur"):
        look["decoder.blocks.0.attn.z"]
    assert is_clean(model)


@torch.no_grad()
def test_the_documented_example() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lens.md").read_text(encoding="utf-8")
    code = page.partition("## Activations by name")[2].split("```python")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    steps = names["look"]["decoder.blocks.2.cross.pattern"]
    assert len(steps) > 3
    assert {step.size(1) for step in steps} == {1}
    assert names["look"]["encoder.blocks.1.resid_post"].dim() == 3


@pytest.mark.parametrize("cell", ["gru", "gru-simple"])
@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2])])
@torch.no_grad()
def test_layers_asked_only_for_outputs_are_seen_once(cell: str, lengths: Tensor | None) -> None:
    net = nn.ModuleDict({"layers": recurrent(cell, 3, 7, 1, True)})
    layers: Any = net["layers"]
    with Lens(
        net, keep=["layers.l0.h", "layers.l0_reverse.update"] if cell == "gru-simple" else ["layers.l0.h"]
    ) as look:
        y = layers.outputs(torch.randn(2, 5, 3), lengths)
    states = look["layers.l0.h"]  # one tensor, not a list
    torch.testing.assert_close(states[0], y[0, :, :7])
    assert is_clean(net)


@torch.no_grad()
def test_heads_are_chosen_together() -> None:
    model, batch = ready("gpt")
    name = "decoder.blocks.0.attn.pattern"
    for keep, n in (([f"{name}[3]", f"{name}[1,3]"], 2), ([name, f"{name}[1]"], 5), ([f"{name}[1]", name], 5)):
        with Lens(model, keep=keep) as look:
            model(batch)
        assert look[name].size(1) == n
    with pytest.raises(ConfigError, match=r"attn\.pattern has no head 5") as caught:
        Lens(model, keep=[f"{name}[5]"])
    assert caught.value.hint == "choose from 0 to 4"


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's, when it imports its compiler
@torch.no_grad()
def test_a_compiled_block_runs_uncompiled_inside() -> None:
    model, batch = ready("gpt")
    before = model(batch)
    model.decoder.blocks[1].compile()
    compiled = model.decoder.blocks[1]._compiled_call_impl
    assert compiled is not None
    with Lens(model, keep=["decoder.blocks.1.resid_post"]) as look:
        assert model(batch).equal(before)
    assert "decoder.blocks.1.resid_post" in look
    assert model.decoder.blocks[1]._compiled_call_impl is compiled
