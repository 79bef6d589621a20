"""Scores of induction heads, on a model whose weights are set by hand to be an induction circuit."""

from math import sqrt
from typing import Any

import pytest
import torch

import clearformer
from clearformer.data.batch import TextBatch
from clearformer.errors import ConfigError
from clearformer.handles.language_model import LanguageModel
from clearformer.lens.induction import gain_of, induction, repeated
from clearformer.lens.patches import zero_heads
from clearformer.lens.session import Lens
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.text import TextConfig, train_tokenizer

N, H = 13, 3  # tokens before the repetition, heads
PREVIOUS, INDUCTION = 2, 1  # heads of layer 0 and layer 1
SHARP = 50.0  # scores of a match


def circuit(V: int, T: int) -> GPT:
    """Two layers of attention that copy: [A B … A] → B.

    The residual stream has four parts: the token, its position, the token before it (written by layer 0), and the
    prediction (written by layer 1). Every vector is a sum of unit vectors, whose length the norms leave as it is.
    """
    K, D = max(V, T), 3 * V + T
    model = GPT(
        GPTConfig(
            vocab=V, n_layers=2, d_model=D, d_head=K, d_ff=1, n_heads=H, max_length=T, norm="rms", norm_eps=1e-12,
            bias=False, tied=False, dropout=0, attention_dropout=0,
        )
    ).double().eval()  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    unit, place = torch.eye(V).double(), torch.eye(T).double()
    token, position, before, answer = slice(V), slice(V, V + T), slice(V + T, 2 * V + T), slice(2 * V + T, D)
    model.embedding.weight[:, token] = unit
    model.decoder.positions.table.weight[:, position] = place
    first, second = model.decoder.blocks
    for n_parts, norm in ((2, first.add_attn.norm), (3, second.add_attn.norm), (4, model.decoder.norm)):
        norm.weight[:] = sqrt(n_parts / D)

    def head_of(layer: Any, head: int) -> tuple[Any, Any, Any, Any]:
        q, k, v = (part.unflatten(0, (H, K))[head] for part in layer.qkv.weight.split(layer.rows))
        return q, k, v, layer.out.weight[:, head * K : (head + 1) * K]

    q, k, v, out = head_of(first.attn, PREVIOUS)
    q[:T, position], k[1:T, position] = SHARP * sqrt(K) * place, place[:-1]  # the key of s is the query of s + 1
    v[:V, token], out[before, :V] = unit, unit
    q, k, v, out = head_of(second.attn, INDUCTION)
    q[:V, token], k[:V, before] = SHARP * sqrt(K) * unit, unit  # the token before s is the token at t
    v[:V, token], out[answer, :V] = unit, unit
    model.unembedding.weight[:, answer] = SHARP * unit
    return model


@pytest.fixture
def handle() -> LanguageModel:
    tokenizer = train_tokenizer(["abcdefghijklmnopqrstuvwxyz"], TextConfig(kind="char", min_frequency=1))
    with torch.no_grad():
        return LanguageModel(circuit(tokenizer.vocab_size, 2 * N + 1), tokenizer, name="circuit")


def test_the_heads_of_the_circuit_have_a_score_of_one(handle: LanguageModel) -> None:
    values = induction(handle)
    panels = {panel["name"]: torch.tensor(panel["values"]) for panel in values["panels"]}
    scores, previous = panels["induction score"], panels["previous-token score"]
    assert scores.shape == previous.shape == (2, H)
    assert scores[1, INDUCTION] > 0.99
    assert previous[0, PREVIOUS] > 0.99
    scores[1, INDUCTION] = previous[0, PREVIOUS] = 0
    assert max(scores.max(), previous.max()) < 0.1  # heads with scores of 0 attend to all positions alike
    assert values["gain"] > 2.5  # from about log 1/26 to log 1


@pytest.mark.parametrize(("layer", "head"), [(0, PREVIOUS), (1, INDUCTION)])
@torch.no_grad()
def test_without_either_head_nothing_is_copied(handle: LanguageModel, layer: int, head: int) -> None:
    tokens = repeated(torch.arange(4, 30), N, 7, seed=1)
    tokens = torch.cat([torch.zeros(7, 1).long(), tokens], 1)  # position 0 has no token before it and sees itself

    def accuracy(*heads: int) -> float:
        with Lens(handle.model, put={f"decoder.blocks.{layer}.attn.z": zero_heads(*heads)}):
            predicted = handle.model(TextBatch(tokens, tokens)).argmax(-1)
        return float((predicted[:, N + 1 : -1] == tokens[:, N + 2 :]).double().mean())

    assert accuracy(*({0, 1, 2} - {head})) == 1.0  # all others switched off
    assert accuracy(head) < 0.2


def test_repeated_tokens() -> None:
    tokens = repeated(torch.arange(5, 30), N, 3, seed=0)
    assert tokens[:, :N].equal(tokens[:, N:])
    assert all(len(set(row.tolist())) == N for row in tokens)  # no token twice
    assert repeated(torch.arange(5, 10), N, 3, seed=0).shape == (3, 2 * N)


def test_the_gain_by_hand() -> None:
    """Tokens 0 1 0 1: the last has p = 0.9; the second, the only other that counts, p = 0.5."""
    logits = torch.tensor([[[0.5, 0.5], [0.2, 0.8], [0.1, 0.9], [0.3, 0.7]]]).log()
    assert abs(gain_of(logits, torch.tensor([[0, 1, 0, 1]]), 2) - torch.tensor(0.9 / 0.5).log()) < 1e-6


def test_mistakes_are_explained(handle: LanguageModel) -> None:
    with pytest.raises(ConfigError, match="is a translator, not a language model"):
        induction(clearformer.load())
    lstm = RNN(RNNConfig(vocab=handle.tokenizer.vocab_size, d_model=7))
    with pytest.raises(ConfigError, match="lstm has no attention heads"):
        induction(LanguageModel(lstm, handle.tokenizer, name="lstm"))
