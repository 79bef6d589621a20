"""What every registered model promises, and every preset."""

import copy
import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from clearformer.checkpoint import load_tensors, load_weights, map_tensors, save_tensors, weights_of
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, ImageBatch, SoundBatch, TextBatch
from clearformer.errors import CheckpointError
from clearformer.models import MODELS
from clearformer.models.build import build_mapped, build_unfilled, model_config, presets
from clearformer.models.deferred import Deferred
from clearformer.tasks import objective_named, objective_names

B, S, T, V = 2, 7, 5, 23

# Sizes that build in an instant. A new model adds its row.
SMALL: dict[str, dict[str, Any]] = {
    "transformer": {
        "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 10, "d_ff": 13,
        "n_heads": 5, "max_length": 11,
    },
    "gpt": {"vocab": V, "n_layers": 3, "d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11},
    "rnn-lm": {"vocab": V, "n_layers": 3, "d_model": 10, "max_length": 11},
    "birnn": {"vocab": V, "n_layers": 2, "d_model": 10, "d_embedding": 7},
    "textcnn": {"vocab": V, "widths": (2, 3), "d_model": 10, "d_embedding": 7},
    "bert": {"vocab": V, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11},
    "classifier": {
        "base": {"kind": "bert", "vocab": V, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11},
        "pooling": "pooler",
        "n_classes": 3,
    },
    "seq2seq": {
        "source_vocab": V, "target_vocab": V, "attention": "additive", "d_model": 7, "d_embedding": 10,
    },
    "speech-rnn": {"vocab": V - 1, "channels": 7, "n_layers": 2, "d_model": 10, "strides": (2,)},
    "speech-transformer": {
        "vocab": V - 1, "channels": 7, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "strides": (2,),
    },
    "t5": {
        "source_vocab": V, "target_vocab": V, "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 10, "d_ff": 13,
        "n_heads": 5, "d_head": 3,
    },
    "alexnet": {
        "widths": (2, 3, 5, 7, 11), "first": 3, "stride": 1, "grid": 2, "d_model": 10, "size": 29, "channels": 2,
        "n_classes": 3,
    },
    "googlenet": {
        "stages": (((2, 0, 3, 2, 1, 2),), ((3, 2, 3, 2, 2, 2),)), "auxiliary": ("4a",), "stem": False, "size": 13,
        "channels": 2, "n_classes": 3, "batch_norm": True,
    },
    "resnet": {
        "block": "basic", "depths": (1, 2), "widths": (7, 10), "stem": "3x3", "stem_width": 5, "size": 13,
        "channels": 2, "n_classes": 3,
    },
    "autoencoder": {"form": "conv", "widths": (5, 7), "code": "gaussian", "d_code": 10, "size": 13, "channels": 2},
    "vgg": {
        "depths": (1, 2), "widths": (5, 7), "grid": 2, "d_model": 10, "batch_norm": True, "size": 13, "channels": 2,
        "n_classes": 3,
    },
    "vit": {
        "size": 14, "patch": 7, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "dropout": 0.1, "channels": 2,
        "n_classes": 3,
    },
}  # fmt: skip
JUDGES = ("classification", "image-classification", "reconstruction")  # of texts and images, eight of them here

every_model = pytest.mark.parametrize("name", MODELS.names())
every_preset = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "resnet1202" else []) for name in presets()]
)


def build(name: str) -> Any:
    torch.manual_seed(0)
    kind = MODELS.resolve(name)
    return kind(kind.Config(**SMALL[name]))


def batch_for(model: Any) -> Any:
    """Two rows of the kind that the model's task has, with eight answers: of their ten positions, or of rows."""
    source, tokens, labels = (torch.randint(3, V, (B, n)) for n in (S, T, T))
    labels[1, 3:] = IGNORE
    match model.task:
        case "translation":
            return Batch(source, torch.arange(S) < torch.tensor([[S], [4]]), tokens, labels)
        case "causal-lm":
            return TextBatch(tokens, labels)
        case "masked-lm":
            mask, segments = torch.arange(T) < torch.tensor([[T], [3]]), (torch.arange(T) > 2).long().expand(B, -1)
            return EncoderBatch(tokens, mask, segments, labels, classes=torch.tensor([1, 0]))
        case "classification":
            mask, classes = torch.arange(T) < torch.tensor([T, 3, 1, 2] * B)[:, None], torch.tensor([1, 0, 2, 1] * B)
            return EncoderBatch(tokens.repeat(4, 1), mask, classes=classes)
        case "image-classification" | "reconstruction":
            side = model.config.size
            return ImageBatch(torch.randn(4 * B, model.config.channels, side, side), torch.tensor([1, 0, 2, 1] * B))
        case "ctc":  # of 9 frames and of 6, every other is judged; the second says three tokens
            frames = torch.randn(B, 2 * T - 1, 7) * (torch.arange(2 * T - 1) < torch.tensor([[9], [6]]))[:, :, None]
            labels = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, IGNORE, IGNORE]])
            return SoundBatch(frames, torch.tensor([9, 6]), labels)
    raise ValueError(model.task)


def ready(model: Any) -> tuple[Any, Any]:
    return model, batch_for(model)


@every_model
def test_its_configuration_names_it(name: str) -> None:
    kind = MODELS.resolve(name)
    assert issubclass(kind, nn.Module)
    assert kind.Config(**SMALL[name]).kind == name
    assert build(name).config == kind.Config(**SMALL[name])


@every_model
def test_a_network_for_loaded_weights_draws_none(name: str) -> None:
    """After loading, nothing of it differs from the network that the weights are from, tables included."""
    drawn = build(name)
    weights, before = weights_of(drawn), torch.get_rng_state()
    unfilled = build_unfilled(drawn.config, weights, name)
    assert torch.get_rng_state().equal(before)
    for missing in weights:
        rest = {key: tensor for key, tensor in weights.items() if key != missing}
        with pytest.raises(CheckpointError, match=f"`{re.escape(missing)}` is missing"):
            load_weights(unfilled, rest, name)
    load_weights(unfilled, weights, name)
    expected, actual = ({**dict(net.named_parameters()), **dict(net.named_buffers())} for net in (drawn, unfilled))
    assert expected.keys() == actual.keys()
    assert all(tensor.equal(actual[key]) for key, tensor in expected.items())


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_network_that_is_filled_later_has_the_same_bits(name: str, dtype: torch.dtype) -> None:
    """Block by block, in any order: the same parameters, tied ones included, tables, and random draws afterwards."""
    torch.set_default_dtype(dtype)
    try:
        drawn = build(name)
        after = torch.get_rng_state()
        with Deferred() as later:
            model = build(name)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.get_rng_state().equal(after)
    assert all(parameter.is_meta for parameter in model.parameters())
    for part in (*reversed([*model.children()]), model):
        later.fill(model, part)
        assert not any(tensor.is_meta for tensor in (*part.parameters(), *part.buffers()))
    assert torch.get_rng_state().equal(after)
    expected, actual = (
        {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())} for net in (drawn, model)
    )
    assert expected.keys() == actual.keys()
    for key, tensor in expected.items():
        assert tensor.dtype == actual[key].dtype
        assert tensor.requires_grad == actual[key].requires_grad
        assert tensor.equal(actual[key])
    assert len(dict(drawn.named_parameters())) == len(dict(model.named_parameters()))  # tied
    if dtype == torch.float32:
        batch = batch_for(drawn.eval())
        assert outputs(drawn, batch).equal(outputs(model.eval(), batch))


@every_model
def test_a_mapped_network_has_every_saved_tensor(name: str, tmp_path: Path) -> None:
    """Those that are no parameters too, such as the statistics of batch norm."""
    model = build(name)
    with torch.no_grad():
        for tensor in weights_of(model).values():
            tensor += 1
    expected = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    save_tensors(tmp_path / "model.safetensors", weights_of(model))
    weights, _ = map_tensors(tmp_path / "model.safetensors")
    mapped = build_mapped(model.config, weights, "model").state_dict()
    assert mapped.keys() == expected.keys()
    assert all(tensor.equal(mapped[key]) for key, tensor in expected.items())


def outputs(model: Any, batch: Any) -> torch.Tensor:
    with torch.no_grad():
        result = model(batch)
    return result if isinstance(result, torch.Tensor) else result[0]


@every_model
def test_its_objective_is_registered(name: str) -> None:
    task = MODELS.resolve(name).task
    assert task in objective_names()


@every_model
def test_forward_is_the_head_of_hidden(name: str) -> None:
    model, batch = ready(build(name).eval())
    hidden, logits = model.hidden(batch), model(batch)
    judges = model.task in JUDGES
    assert hidden.shape == ((8, 10) if judges else (B, T, 10))
    answer = batch.pixels.shape if model.task == "reconstruction" else (8, 3) if judges else (B, T, V)
    assert logits.shape == answer
    assert logits.equal(model.head(hidden))
    assert logits.isfinite().all()


@every_model
def test_dropout_is_for_training_and_evaluation_repeats_itself(name: str) -> None:
    model, batch = ready(build(name))
    if any(isinstance(module, nn.Dropout) for module in model.modules()):
        assert not model(batch).equal(model(batch))
    model.eval()
    assert model(batch).equal(model(batch))


@every_model
def test_every_parameter_receives_a_gradient_from_its_objective(name: str) -> None:
    model, batch = ready(build(name))
    kind = objective_named(model.task)
    loss = kind(kind.Config())(model, batch)
    assert loss.n_tokens == batch.n_tokens == 8
    loss.total.backward()
    idle = [n for n, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert idle == []


@every_model
def test_the_same_seed_is_the_same_model(name: str) -> None:
    for ours, theirs in zip(build(name).state_dict().values(), build(name).state_dict().values()):
        assert ours.equal(theirs)


@every_model
def test_it_survives_being_saved(name: str, tmp_path: Path) -> None:
    other, (model, batch) = build(name).eval(), ready(build(name).eval())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    save_tensors(tmp_path / "model.safetensors", weights_of(model))
    weights, _ = load_tensors(tmp_path / "model.safetensors")
    state = model.state_dict(keep_vars=True).values()
    assert len({id(tensor) for tensor in state}) == len(weights)  # tied tensors are saved once
    load_weights(other, weights, "model.safetensors")
    assert other(batch).equal(model(batch))


@every_model
def test_a_deep_copy_is_another_model(name: str) -> None:
    model, batch = ready(build(name).eval())
    before, twin = model(batch), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(3)
    assert model(batch).equal(before)
    assert not twin(batch).allclose(before)


@every_model
def test_steps_say_what_one_pass_says(name: str) -> None:
    model, batch = ready(build(name).double().eval())
    if not hasattr(model, "step"):
        pytest.skip("reads texts whole")
    whole = model(batch)
    if model.task == "translation":
        state, tokens, begin = model.start(batch.source, batch.source_mask), batch.target, 0
    else:
        state, tokens, begin = model.start(batch.tokens[:, :2], None), batch.tokens, 2
    for t in range(begin, T):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])


def size_of(model: Any) -> tuple[int, ...]:
    """The length of an input: T tokens, pixels per side of an image, or frames; and its channels."""
    match model.task:
        case "image-classification" | "reconstruction":
            return model.config.size, model.config.channels
        case "ctc":
            return T * prod(model.config.strides), model.config.channels
    return (T,)


@every_preset
def test_a_preset_builds_and_runs_without_memory(name: str) -> None:
    """On the meta device, which has shapes and no numbers."""
    config = model_config(name)
    with torch.device("meta"):
        model = MODELS.resolve(config.kind)(config)
        logits = model(model.batch_class.blank(B, *size_of(model)))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    if model.task == "image-classification":
        assert len(logits) == B
        assert config.n_classes in (logits.size(1), 0)
    elif model.task == "reconstruction":
        assert logits.shape == (B, config.channels, config.size, config.size)
    else:  # of recordings, the blank is one more answer
        entries = config.target_vocab if model.task == "translation" else config.vocab + (model.task == "ctc")
        assert logits.shape == (B, T, entries)


@every_preset
def test_a_preset_says_only_what_differs_and_is_kept_by_name(name: str) -> None:
    config = model_config(name)
    assert config.preset == name
    for key, value in presets()[name].items():
        assert config.changed(**{key: value}) == config


def test_presets_grow() -> None:
    def count(name: str) -> int:
        config = model_config(name)
        with torch.device("meta"):
            return sum(p.numel() for p in MODELS.resolve(config.kind)(config).parameters())

    sizes = [count(f"transformer-{size}") for size in ("tiny", "small", "base", "big")]
    assert sizes == sorted(sizes)
    # Table 3 of the paper, in millions: base 65, big 213. It has one vocabulary of about 37,000.
    assert sizes[2:] == [pytest.approx(65e6, rel=0.05), pytest.approx(213e6, rel=0.05)]


def test_the_notes_slip_in_berts_heads() -> None:
    """They say ten; 768 features do not divide by ten."""
    config = model_config("bert-base")
    assert (config.n_heads, config.head_width) == (12, 64)
