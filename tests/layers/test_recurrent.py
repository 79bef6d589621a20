"""Layers of cells against torch's own modules, and what holds of every cell."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearformer.layers.cells import CELLS
from clearformer.layers.recurrent import Fused, Unrolled, recurrent

from ..bounds import float32_bound_of

B, T, I, D, L = 3, 7, 5, 11, 2
LENGTHS = torch.tensor([4, 7, 2])
STANDARD = [name for name, cell in CELLS.items() if cell.kernel]
WAYS = pytest.mark.parametrize("both", [False, True], ids=["forwards", "both ways"])
LAYERS = pytest.mark.parametrize("n_layers", [1, L], ids=["one layer", "stacked"])


def gradients(module: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([x.flatten() for x in torch.autograd.grad(loss, list(module.parameters()))])


def assert_near(reference: nn.Module, ours: Sequence[Tensor], run: Callable[[nn.Module], list[Tensor]]) -> None:
    """In float32 within what rounding may do: sums over the D features of both ways below and of the state before."""
    for i, (a, b) in enumerate(zip(ours, run(reference), strict=True)):
        exact = a.dtype == torch.float64
        bound = 1e-12 if exact else float32_bound_of(reference, lambda other, i=i: run(other)[i], n_terms=3 * D)  # type: ignore[misc]
        assert (a - b).abs().max() <= bound


def theirs(cell: str, n_layers: int, both: bool) -> Any:
    """torch's module as anyone would use it."""
    torch.manual_seed(0)
    return CELLS[cell].kernel(I, D, n_layers, batch_first=True, bidirectional=both)


def told(module: nn.Module, x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    first: Any = tuple(state) if len(state) > 1 else state[0]
    if lengths is None:
        outputs, last = module(x, first)
    else:
        packed, last = module(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), first)
        outputs = pad_packed_sequence(packed, batch_first=True)[0]
    return outputs, torch.stack(last) if len(state) > 1 else last[None]


@pytest.mark.parametrize("kind", [Unrolled, Fused])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@WAYS
@LAYERS
@pytest.mark.parametrize("cell", STANDARD)
def test_parity_with_torch(
    cell: str, n_layers: int, both: bool, packed: bool, dtype: torch.dtype, kind: type[Unrolled]
) -> None:
    reference = theirs(cell, n_layers, both).to(dtype)
    ours = kind(cell, I, D, n_layers, both).to(dtype)
    ours.weights.load_state_dict(reference.state_dict())
    x = torch.randn(B, T, I, dtype=dtype)
    state = torch.randn(CELLS[cell].n_states, n_layers * (1 + both), B, D, dtype=dtype)
    lengths = LENGTHS if packed else None

    def results(module: nn.Module, outputs: Tensor, last: Tensor) -> list[Tensor]:
        return [outputs, last, gradients(module, outputs.sum() + last.sin().sum())]

    def run(module: nn.Module) -> list[Tensor]:
        precision = next(module.parameters()).dtype
        return results(module, *told(module, x.to(precision), state.to(precision), lengths))

    assert_near(reference, results(ours.weights, *ours(x, state, lengths)), run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@WAYS
@LAYERS
@pytest.mark.parametrize("cell", STANDARD)
def test_outputs_alone_are_those_of_torchs_packed_rows(
    cell: str, n_layers: int, both: bool, dtype: torch.dtype
) -> None:
    reference, ours = theirs(cell, n_layers, both).to(dtype), Fused(cell, I, D, n_layers, both).to(dtype)
    ours.weights.load_state_dict(reference.state_dict())
    x = torch.randn(B, T, I, dtype=dtype)
    state = x.new_zeros(CELLS[cell].n_states, n_layers * (1 + both), B, D)

    def results(module: nn.Module, outputs: Tensor) -> list[Tensor]:
        return [outputs, gradients(module, outputs.sin().sum())]

    def run(module: nn.Module) -> list[Tensor]:
        precision = next(module.parameters()).dtype
        return results(module, told(module, x.to(precision), state.to(precision), LENGTHS)[0])

    assert_near(reference, results(ours.weights, ours.outputs(x, LENGTHS)), run)


def build(cell: str, n_layers: int = L, both: bool = True, **settings: Any) -> Unrolled:
    torch.manual_seed(1)
    return recurrent(cell, I, D, n_layers, both, **settings).double()


every_cell = pytest.mark.parametrize("cell", CELLS)


@every_cell
def test_the_fast_one_is_taken_where_there_is_one(cell: str) -> None:
    assert type(build(cell)) is (Fused if cell in STANDARD else Unrolled)


@every_cell
@pytest.mark.parametrize("lengths", [None, torch.tensor([2, 3])], ids=["whole", "packed"])
def test_gradients_of_the_equations(cell: str, lengths: Tensor | None) -> None:
    torch.manual_seed(2)
    layer = Unrolled(cell, 2, 3, 2, True).double()
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    state = torch.randn(CELLS[cell].n_states, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, state, *_: layer(x, state, lengths), (x, state, *layer.parameters()))


@every_cell
def test_a_batch_of_lengths_says_what_its_rows_say(cell: str) -> None:
    layer, x = build(cell), torch.randn(B, T, I).double()
    outputs, last = layer(x, None, LENGTHS)
    for row, n in enumerate(LENGTHS.tolist()):
        alone, end = layer(x[row : row + 1, :n])
        torch.testing.assert_close(outputs[row : row + 1, :n], alone)
        torch.testing.assert_close(last[:, :, row : row + 1], end)
        assert not outputs[row, n:].any()


@every_cell
def test_a_text_cut_in_two_goes_on_from_its_state(cell: str) -> None:
    layer, x = build(cell, both=False), torch.randn(B, T, I).double()
    whole, end = layer(x)
    first, state = layer(x[:, :3])
    rest, last = layer(x[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole)
    torch.testing.assert_close(last, end)


@every_cell
def test_a_row_without_words_keeps_its_state(cell: str) -> None:
    layer, x = build(cell), torch.randn(B, T, I).double()
    state = torch.randn(CELLS[cell].n_states, 2 * L, B, D).double()
    outputs, last = layer(x, state, torch.tensor([0, 5, 0]))
    assert not outputs[[0, 2]].any()
    assert last[:, :, [0, 2]].equal(state[:, :, [0, 2]])
    torch.testing.assert_close(last[:, :, 1:2], layer(x[1:2, :5], state[:, :, 1:2])[1])
    outputs, last = layer(x[:, :0], state)
    assert (outputs.shape, last.equal(state)) == ((B, 0, 2 * D), True)


@every_cell
def test_the_way_back_reads_from_the_end(cell: str) -> None:
    """Its first output is its last state, and what it says at t depends on t and later alone."""
    layer, x = build(cell, n_layers=1), torch.randn(B, T, I).double()
    outputs, last = layer(x)
    torch.testing.assert_close(outputs[:, 0, D:], layer.cell.read(last[:, 1]))
    changed = x.clone()
    changed[:, 3] += 1
    forwards, backwards = (layer(changed)[0] != outputs).any(0).split(D, dim=1)
    assert forwards.any(1).tolist() == [False] * 3 + [True] * 4
    assert backwards.any(1).tolist() == [True] * 4 + [False] * 3


@pytest.mark.parametrize("cell", ["lstm", "lstm-notes"])
def test_dropout_is_between_layers_and_for_training(cell: str) -> None:
    layer, x = build(cell, dropout=0.5), torch.randn(B, T, I).double()
    assert not layer(x)[0].equal(layer(x)[0])
    first = layer(x)[1][:, :2]  # of the first layer, which nothing is dropped before
    assert first.equal(layer(x)[1][:, :2])
    layer.eval()
    assert layer(x)[0].equal(layer(x)[0])


def test_autocast_leaves_the_recurrence_in_its_own_precision() -> None:
    layer = recurrent("gru", I, D)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, last = layer(torch.randn(B, T, I, dtype=torch.bfloat16))
    assert outputs.dtype == last.dtype == torch.float32
