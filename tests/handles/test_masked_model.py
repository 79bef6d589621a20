"""A masked model judges and fills as its definition says, by the numbers of another library's BERT."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig as TheirConfig
from transformers import BertForMaskedLM

from clearformer.checkpoint import load_weights
from clearformer.data.batch import EncoderBatch
from clearformer.errors import ConfigError, DataError
from clearformer.handles.gaps import fill, repair
from clearformer.handles.masked_model import MaskedModel
from clearformer.interop.huggingface.bert import import_folder
from clearformer.models.bert import Bert, BertConfig
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

LINES = ["the player plays a play", "players played the playing man", "a man sees the player"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    config = TextConfig(kind="wordpiece", vocab_size=47, strict=False, min_frequency=1, extra=("[MASK]",))
    return train_tokenizer(LINES, config)


@pytest.fixture(scope="module")
def both(tokenizer: Tokenizer, tmp_path_factory) -> tuple[MaskedModel, Any]:
    """The same BERT, ours and of `transformers`, in float64: words of a text are judged in batches, and alone."""
    torch.manual_seed(0)
    config = TheirConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=21, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=13, max_position_embeddings=29,
    )  # fmt: skip
    theirs = BertForMaskedLM(config).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    folder: Path = tmp_path_factory.mktemp("bert")
    theirs.save_pretrained(folder)
    ours_config, weights = import_folder(folder)
    ours = Bert(ours_config).double()
    load_weights(ours, weights, "bert")
    return MaskedModel(ours, tokenizer), theirs


@torch.no_grad()
def logprob(theirs: Any, ids: list[int], hidden: list[int], place: int, mask: int) -> float:
    """log p of ids[place], when the places `hidden` cannot be seen."""
    seen = torch.tensor([[mask if i in hidden else token for i, token in enumerate(ids)]])
    return float(theirs(seen).logits[0, place].log_softmax(-1)[ids[place]])


def test_a_score_is_the_pseudo_log_likelihood(both: tuple[MaskedModel, Any], tokenizer: Tokenizer) -> None:
    ours, theirs = both
    texts = ["the player plays", "a man", "players sees the playing man a"]
    for text, score in zip(texts, ours.score(texts)):
        (ids,), _ = tokenizer.encode_with_specials([text])
        places = range(1, len(ids) - 1)
        expected = sum(logprob(theirs, ids, [i], i, ours.mask_id) for i in places)
        assert score.logprob == pytest.approx(expected, abs=1e-9)
        assert (score.text, score.tokens) == (text, len(ids) - 2)
    assert ours.score(texts[:1])[0].logprob == pytest.approx(ours.score(texts)[0].logprob, abs=1e-9)
    assert [s.logprob for s in ours.score([""])] == [0.0]


def test_a_word_of_several_pieces_is_filled_from_left_to_right(
    both: tuple[MaskedModel, Any], tokenizer: Tokenizer
) -> None:
    ours, theirs = both
    for word, logp in ours.weigh("the ", " plays a man", ["man", "players", "sees"]):
        (ids,), _ = tokenizer.encode_with_specials([f"the {word} plays a man"])
        n = len(tokenizer.encode([word])[0])
        places = list(range(2, 2 + n))
        expected = sum(logprob(theirs, ids, places[j:], place, ours.mask_id) for j, place in enumerate(places))
        assert logp == pytest.approx(expected, abs=1e-9)
    assert len(tokenizer.encode(["players"])[0]) > 1


def test_proposals_are_the_likeliest_whole_words(both: tuple[MaskedModel, Any], tokenizer: Tokenizer) -> None:
    ours, _ = both
    found = ours.propose("the ", " plays a man", n=200)
    assert all(a[1] >= b[1] for a, b in pairwise(found))
    assert not any("#" in word or " " in word or word in tokenizer.SPECIALS for word, _ in found)
    assert any(len(tokenizer.encode([word])[0]) > 1 for word, _ in found)
    for word, logp in found[:20]:  # what the search found is what weighing says, where the word is cut as it was found
        if len(tokenizer.encode([word])[0]) == 1:
            assert logp == pytest.approx(ours.weigh("the ", " plays a man", [word])[0][1], abs=1e-9)
    singles = {word: logp for word, logp in found if len(tokenizer.encode([word])[0]) == 1}
    words = [piece for piece in tokenizer.pieces(range(5, tokenizer.vocab_size)) if piece.isalpha()]
    best = ours.weigh("the ", " plays a man", words)[0]
    assert max(singles, key=singles.__getitem__) == best[0]


def test_gaps_are_filled_by_probability_and_repaired_by_score(both: tuple[MaskedModel, Any]) -> None:
    ours, _ = both
    best = fill(ours, "the man ___ a play", n=3)
    found = ours.propose("the man ", " a play")
    assert [(row.word, row.logprob) for row in best] == found[:3]
    assert (best[0].position, best[0].text) == (2, f"the man {found[0][0]} a play")
    given = fill(ours, "the man ___ a play", candidates=["plays", "sees"])
    assert {row.word for row in given} == {"plays", "sees"}
    assert sum(row.probability for row in given) == pytest.approx(1)
    repaired = repair(ours, "the man a play", n=4)
    assert [row.logprob for row in repaired] == pytest.approx(
        [score.logprob for score in ours.score([row.text for row in repaired])], abs=1e-9
    )
    assert all(row.text.split()[row.position] == row.word for row in repaired)


def test_mistakes_are_said(both: tuple[MaskedModel, Any], tokenizer: Tokenizer) -> None:
    ours, _ = both
    with pytest.raises(DataError, match="reads at most 29"):
        ours.score(["the man " * 20])
    plain = train_tokenizer(LINES, TextConfig(kind="word", min_frequency=1))
    with pytest.raises(DataError, match="no mask token"):
        MaskedModel(ours.model, plain)
    encoder = Bert(ours.model.config.changed(word_head=False))
    with pytest.raises(ConfigError, match="has no word_head"):
        MaskedModel(encoder, tokenizer).score(["the man"])


def test_a_next_sentence_head_says_whether_a_text_follows(tokenizer: Tokenizer) -> None:
    """As the model says of one pair at a time, by the probability of class 0."""
    torch.manual_seed(0)
    config = BertConfig(vocab=tokenizer.vocab_size, n_layers=1, d_model=21, d_ff=13, n_heads=3, max_length=29)
    handle = MaskedModel(Bert(config).double(), tokenizer)
    seconds = ["the player plays", "a man", "players sees the playing man a"]
    values = handle.follows(["a man sees"] * 3, seconds)
    for second, value in zip(seconds, values):
        [tokens], [segments] = tokenizer.encode_with_specials(["a man sees"], [second])
        batch = EncoderBatch(torch.tensor([tokens]), segments=torch.tensor([segments]))
        with torch.no_grad():
            logits = handle.compare_pair(batch)
        assert value == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-12)
    headless = MaskedModel(Bert(config.changed(next_sentence_head=False, pooler=False)), tokenizer, "runs/x")
    with pytest.raises(ConfigError, match="runs/x has no next-sentence head"):
        headless.follows(["a man"], ["a man"])
