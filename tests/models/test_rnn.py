"""The recurrent language model: its sizes, its reading on, its decoding."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.data.batch import TextBatch
from clearformer.errors import ConfigError
from clearformer.layers.cells import CELLS
from clearformer.models.build import model_config
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig

B, T, V, L, D = 3, 7, 23, 2, 11


def build(**changes: Any) -> RNN:
    torch.manual_seed(0)
    sizes = {"vocab": V, "n_layers": L, "d_model": D, "dropout": 0.0, "init": 0.4}
    return RNN(RNNConfig(**{**sizes, **changes})).double()


def tokens_of(*shape: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(V, shape)


@pytest.mark.parametrize(("name", "millions"), [("lstm-ptb-small", 4.65), ("lstm-ptb-medium", 19.8)])
def test_the_sizes_of_the_paper(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = RNN(model_config(name))
    n = sum(p.numel() for p in model.parameters())
    assert round(n / 1e6, 2 if millions < 10 else 1) == millions


def test_it_is_torchs_lstm_between_an_embedding_and_a_matrix() -> None:
    ours, tokens = build(), tokens_of(B, T)
    embedding, lstm, head = nn.Embedding(V, D), nn.LSTM(D, D, L, batch_first=True), nn.Linear(D, V)
    for theirs, part in [(embedding, ours.embedding), (lstm, ours.layers.weights), (head, ours.unembedding)]:
        theirs.double().load_state_dict(part.state_dict())
    torch.testing.assert_close(ours(TextBatch(tokens, tokens)), head(lstm(embedding(tokens))[0]), atol=1e-12, rtol=0)


def test_one_hot_vectors_read_the_columns_of_a_matrix() -> None:
    """A cell that reads e_v through U reads U's column v: the table U' as a learned embedding, and no product more."""
    one_hot, learned = build(cell="rnn", embedding="one-hot", n_layers=1), build(cell="rnn", n_layers=1)
    tokens = tokens_of(B, T)
    weights = one_hot.state_dict()
    table = weights.pop("layers.weights.weight_ih_l0").T
    identity = torch.eye(D).double()
    learned.load_state_dict({**weights, "embedding.weight": table, "layers.weights.weight_ih_l0": identity})
    batch = TextBatch(tokens, tokens)
    torch.testing.assert_close(one_hot(batch), learned(batch))
    assert "embedding.weight" not in weights


def test_tied_weights_are_one() -> None:
    tied = build(embedding="tied")
    assert tied.unembedding is not None
    assert tied.unembedding.weight is tied.embedding.weight
    assert sum(p.numel() for p in build().parameters()) - sum(p.numel() for p in tied.parameters()) == V * D


@pytest.mark.parametrize("cell", CELLS)
def test_what_comes_later_cannot_matter(cell: str) -> None:
    model, tokens = build(cell=cell), tokens_of(B, T)
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % V
    said = (model(TextBatch(tokens, tokens)) != model(TextBatch(changed, tokens))).any(2).any(0)
    assert said.tolist() == [False] * 4 + [True] * 3


def test_a_text_in_batches_is_the_text() -> None:
    """Loss and last state; a row that does not go on begins with zeros."""
    model, objective, text = build(), CausalLM(CausalLMConfig()), tokens_of(2, 13)
    tokens, labels = text[:, :-1], text[:, 1:]
    whole = objective(model, TextBatch(tokens, labels)).total
    parts = [
        objective(model, TextBatch(x, y, continues=torch.full((2,), i > 0))).total
        for i, (x, y) in enumerate(zip(tokens.split(5, 1), labels.split(5, 1)))
    ]
    torch.testing.assert_close(sum(parts), whole)
    _, end = model.read(TextBatch(tokens, labels), None)
    torch.testing.assert_close(objective.carried[0], end)
    assert not objective.carried[0].requires_grad
    hidden, _ = model.read(TextBatch(tokens, labels, continues=torch.tensor([True, False])), end)
    alone = model.hidden(TextBatch(tokens, labels))
    assert not hidden[0].allclose(alone[0])
    torch.testing.assert_close(hidden[1], alone[1])


@pytest.mark.parametrize("cell", ["lstm", "gru-simple"])
def test_documents_in_a_row_do_not_see_one_another(cell: str) -> None:
    """Two rows: pieces of 3 and 4 tokens, and of 5, 1 and 1; the first of each goes on from before."""
    model, tokens = build(cell=cell), tokens_of(2, 7)
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 0, 0]])
    documents = (positions == 0).cumsum(1)
    _, state = model.read(TextBatch(tokens.flip(1), tokens), None)
    batch = TextBatch(tokens, tokens, documents, positions, continues=torch.tensor([True, True]))
    hidden, end = model.read(batch, state)
    for row, pieces in enumerate([[3, 4], [5, 1, 1]]):
        at = 0
        for n in pieces:
            some = tokens[row : row + 1, at : at + n]
            alone, last = model.read(TextBatch(some, some), state[:, :, row : row + 1] if at == 0 else None)
            torch.testing.assert_close(hidden[row : row + 1, at : at + n], alone)
            at += n
        torch.testing.assert_close(end[:, :, row : row + 1], last)
    torch.testing.assert_close(model.hidden(batch)[1, 5], model.hidden(TextBatch(tokens[1:, 5:], tokens))[0, 0])


def test_prompts_of_different_lengths_and_branches_go_on_from_their_own() -> None:
    model, tokens = build(), tokens_of(3, 5)
    lengths = [5, 0, 2]
    state = model.start(tokens, torch.arange(5) < torch.tensor(lengths)[:, None])
    last = tokens_of(3, 2)  # two branches each
    logits, state = model.step(last, state)
    state.reorder(torch.tensor([[1, 1], [0, 1], [1, 0]]))
    state.keep(torch.tensor([2, 0]))
    again = tokens_of(2, 2)
    logits, state = model.step(again, state)
    for i, (row, parents) in enumerate([(2, [1, 0]), (0, [1, 1])]):
        for w, parent in enumerate(parents):
            path = torch.cat([tokens[row, : lengths[row]], last[row, parent, None], again[i, w, None]])[None]
            torch.testing.assert_close(logits[i, w], model(TextBatch(path, path))[0, -1])


def test_weights_begin_within_their_bound_and_dropout_spares_time() -> None:
    model = build(init=0.03)
    assert 0.02 < max(p.abs().max().item() for p in model.parameters()) <= 0.03
    torch.manual_seed(3)
    dropped, tokens = build(dropout=0.5), tokens_of(1, T)
    assert isinstance(dropped.layers.weights, nn.LSTM)
    assert dropped.layers.weights.dropout == 0.5
    hidden = dropped.hidden(TextBatch(tokens, tokens))
    assert (hidden == 0).float().mean().item() == pytest.approx(0.5, abs=0.2)  # on what the head reads


def test_no_cell_of_that_name() -> None:
    with pytest.raises(ConfigError, match="cell = 'lstmm' is not"):
        RNNConfig.parse({"cell": "lstmm"}, "x.toml: [model]")


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_learns_to_count(cell: str) -> None:
    """0 1 2 … in a ring of five, with a jump announced two tokens before: only a state can know of it."""
    init, n_steps = (1.0, 250) if cell == "rnn-sigmoid" else (0.2, 170)  # the slope of σ is a quarter of tanh's
    torch.manual_seed(0)
    model = RNN(RNNConfig(vocab=7, n_layers=1, d_model=19, dropout=0.0, init=init, cell=cell))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    draw = torch.Generator().manual_seed(5)
    objective = CausalLM(CausalLMConfig())
    for _ in range(n_steps):
        a, b = (torch.randint(lo, hi, (31, 1), generator=draw) for lo, hi in ((0, 5), (5, 7)))
        text = torch.cat([b, a, (a + 1) % 5, (a + b - 3) % 5], dim=1)  # the last is a + 2 or a + 3, as b says
        total, n = objective(model, TextBatch(text[:, :-1], text[:, 1:]))
        (total / n).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (model(TextBatch(text[:, :-1], text))[:, -1].argmax(-1) == text[:, -1]).float().mean() > 0.95
