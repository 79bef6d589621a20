"""Noun–verb agreement across a growing clause: at the verb, does a network still know the number of the noun?

    The man  who pulled the cart when the king arrived  was already tired
             n words of relative clause

    accuracy(n) = share of sentences with  logit(right verb) > logit(wrong verb),  was against were         chance: ½

The bundled grammar nests relative clauses ("the men who saw the dog which …"), whose nouns are singular or plural and
stand nearer to the verb than the subject. Each network reads a sentence as far as the verb and learns to predict the
verb. It is trained once on short clauses only and once on clauses of all lengths, and tested on other sentences of all
lengths. The recurrent networks predict the verb from their last state; in the two encoder–decoders, the verb is the
first token that the decoder writes. Three seeds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.bundled.grammar import english
from clearformer.bundled.grammar.lexicon import ANIMATE, NOUNS, Number
from clearformer.bundled.grammar.speaker import Speaker
from clearformer.claims.panels import mean_over, panel
from clearformer.data.batch import Batch, TextBatch
from clearformer.layers.cells import CellName
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.training.optim import OptimConfig

BINS = ((1, 5), (6, 10), (11, 20), (21, 30), (31, 40), (41, 50), (51, 60))  # words of the clause, for the tests
REGIMES = {"short": (1, 10), "all": (1, 60)}  # words of the clause, for training
VERBS = ("was", "were")  # by Number
PAD, BOS = 0, 1
D, ROWS, STEPS, RATE, SEEDS = 32, 32, 1000, 3e-3, 3
SENTENCES, TESTS = 4000, 200  # of a regime, of a bin


class Sentence(NamedTuple):
    words: tuple[str, ...]  # as far as the verb
    number: Number
    distance: int  # words between the noun and the verb


def recurrent(cell: CellName) -> Callable[[int], nn.Module]:
    return lambda V: RNN(RNNConfig(vocab=V, cell=cell, n_layers=1, d_model=D, dropout=0, init=D**-0.5))


def bahdanau(V: int) -> nn.Module:
    return Seq2Seq(
        Seq2SeqConfig(source_vocab=V, target_vocab=V, attention="additive", d_model=D, d_embedding=D, dropout=0)
    )


def transformer(V: int, positions: str = "sinusoidal") -> nn.Module:
    sizes: dict[str, Any] = {"d_model": D, "d_ff": 2 * D, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 1}
    more: dict[str, Any] = {**sizes, "positions": {"kind": positions}}
    return Transformer(TransformerConfig(source_vocab=V, target_vocab=V, dropout=0, **more))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "RNN": recurrent("rnn"),
    "simplified GRU": recurrent("gru-simple"),
    "GRU": recurrent("gru"),
    "LSTM": recurrent("lstm"),
    "Bahdanau": bahdanau,
    "Transformer": transformer,
}


def look(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot agreement` shows."""
    runs = [measure(seed + k) for k in range(SEEDS)]
    distances = mean_over([run["distance"] for run in runs])
    nearest = mean_over([run["nearest"] for run in runs])
    accuracy = {
        regime: {name: mean_over([run["accuracy"][regime][name] for run in runs]) for name in NETWORKS}
        for regime in REGIMES
    }
    farthest = {regime: {name: line[-1] for name, line in lines.items()} for regime, lines in accuracy.items()}
    low, high = BINS[-1]
    worst = {regime: min(lines.items(), key=lambda item: item[1]) for regime, lines in farthest.items()}
    (one, short), (other, every) = worst["short"], worst["all"]
    return {
        "title": f"Across {low}–{high} words, at worst: {one} {short:.0%} after short clauses, "
        f"{other} {every:.0%} after all",
        "seed": seed,
        "seeds": SEEDS,
        "distance": distances,
        "accuracy": accuracy,
        "farthest": farthest,
        "farthest_by_seed": {
            regime: {name: [run["accuracy"][regime][name][-1] for run in runs] for name in NETWORKS}
            for regime in REGIMES
        },
        "nearest_noun": nearest,
        "panels": [
            panel(f"trained on clauses of {low} to {high} words", "words between noun and verb", "accuracy",
                  accuracy[regime] | {"nearest noun": nearest}, distances)
            for regime, (low, high) in REGIMES.items()
        ],
    }  # fmt: skip


def measure(
    seed: int, networks: Mapping[str, Callable[[int], nn.Module]] = NETWORKS, regimes: Collection[str] = tuple(REGIMES)
) -> dict[str, Any]:
    """Train each network in each regime; returns its accuracy in each bin, and what the nearest noun would give."""
    rng = Random(seed)
    tests = [draw(TESTS, bounds, rng) for bounds in BINS]
    held_out = {sentence.words for some in tests for sentence in some}
    drawn = {regime: draw(SENTENCES, bounds, rng, held_out) for regime, bounds in REGIMES.items()}
    words = {word for some in [*tests, *drawn.values()] for sentence in some for word in sentence.words}
    ids = {word: i for i, word in enumerate(sorted(words.union(VERBS)), start=BOS + 1)}
    accuracy: dict[str, dict[str, list[float]]] = {regime: {} for regime in regimes}
    for regime in regimes:
        for name, build in networks.items():
            torch.manual_seed(seed)
            network = build(len(ids) + BOS + 1)
            train(network, drawn[regime], ids, seed)
            accuracy[regime][name] = [share_right(network, some, ids) for some in tests]
    return {
        "accuracy": accuracy,
        "distance": [fmean(sentence.distance for sentence in some) for some in tests],
        "nearest": [fmean(nearest(sentence) == sentence.number for sentence in some) for some in tests],
    }


def draw(
    n: int, bounds: tuple[int, int], rng: Random, besides: Collection[tuple[str, ...]] = frozenset()
) -> list[Sentence]:
    """Draw n sentences whose clause has a number of words within the bounds; half of the nouns are plural."""
    speaker, sentences = Speaker(rng), list[Sentence]()
    low, high = bounds
    while len(sentences) < n:
        depth = rng.randint(1, max(1, high // 3))  # a nested clause has at least three words
        number = Number(len(sentences) % 2)
        phrase = speaker.phrase(speaker.noun(ANIMATE, depth), depth, number)
        assert phrase.relative is not None
        words = tuple(english.noun_phrase(phrase).split())
        distance = len(english.clause(phrase.relative).split())
        if low <= distance <= high and words not in besides:
            sentences.append(Sentence(words, number, distance))
    return sentences


def nearest(sentence: Sentence) -> Number:
    """Return the number of the noun that is nearest to the verb."""
    numbers = {noun.plural: Number.MANY for noun in NOUNS} | {noun.singular: Number.ONE for noun in NOUNS}
    return next(numbers[word] for word in reversed(sentence.words) if word in numbers)


def train(network: nn.Module, sentences: Sequence[Sentence], ids: dict[str, int], seed: int) -> None:
    optimizer, rng = OptimConfig(lr=RATE).build(network), Random(seed)
    for _ in range(STEPS):
        some = rng.sample(sentences, ROWS)
        verbs = torch.tensor([ids[VERBS[sentence.number]] for sentence in some])
        loss = F.cross_entropy(predict(network, some, ids), verbs)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def predict(network: nn.Module, sentences: Sequence[Sentence], ids: dict[str, int]) -> Tensor:
    """Return the logits of the verb, (B, V)."""
    rows = [torch.tensor([ids[word] for word in sentence.words]) for sentence in sentences]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)  # (B, T)
    n_words = torch.tensor([len(row) for row in rows])
    if isinstance(network, RNN):
        hidden = network.hidden(TextBatch(tokens, tokens))
        return network.head(hidden[torch.arange(len(rows)), n_words - 1])
    begin = torch.full((len(rows), 1), BOS)
    logits: Tensor = network(Batch(tokens, torch.arange(tokens.size(1)) < n_words[:, None], begin, begin))
    return logits[:, 0]


@torch.no_grad()
def share_right(network: nn.Module, sentences: Sequence[Sentence], ids: dict[str, int]) -> float:
    """Return how often the right verb has a larger logit than the wrong one."""
    logits = predict(network.eval(), sentences, ids)[:, [ids[verb] for verb in VERBS]]  # (B, 2)
    numbers = torch.tensor([int(sentence.number) for sentence in sentences])
    return float((logits.argmax(1) == numbers).float().mean())
