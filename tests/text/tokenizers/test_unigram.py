import json
from pathlib import Path

import pytest

from clearformer.errors import TokenizerError
from clearformer.text import TextConfig, train_tokenizer
from clearformer.text.tokenizers.unigram import settled


def test_the_best_cut_has_the_highest_probability(tmp_path: Path) -> None:
    """Every cut of a word, scored by hand from the saved table, against the one the tokenizer takes."""
    lines = ["low lower lowest slow slower slows", "sow sower sowest west wests rest"] * 3
    tokenizer = train_tokenizer(lines, TextConfig(kind="unigram", vocab_size=29, strict=False))
    tokenizer.save(tmp_path / "tokenizer.json")
    scores = dict(json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"][4:])

    def cuts(word: str) -> list[list[str]]:
        heads = [word[:i] for i in range(1, len(word) + 1) if word[:i] in scores]
        return [[head, *rest] for head in heads for rest in cuts(word[len(head) :])] if word else [[]]

    best = max(cuts("▁slowest"), key=lambda pieces: sum(scores[piece] for piece in pieces))
    assert len(cuts("▁slowest")) > 2
    assert tokenizer.pieces(tokenizer.encode(["slowest"])[0]) == best


def test_characters_put_back_in_any_order_settle_in_one() -> None:
    head = [(special, 0.0) for special in ("<pad>", "<bos>", "<eos>", "<unk>")]
    learned = [("the", -2.5), ("cat", -7.0)]
    once = settled([*head, *learned, ("x", -7.9998), ("y", -7.9999), ("z", -8.0)])
    again = settled([*head, *learned, ("z", -7.9998), ("x", -7.9999), ("y", -8.0)])
    assert once.__getstate__() == again.__getstate__()
    assert json.loads(once.__getstate__())["vocab"][4:] == [["the", -2.5], ["cat", -7.0], *([c, -8.0] for c in "xyz")]


def test_more_characters_than_entries() -> None:
    with pytest.raises(TokenizerError, match="more distinct characters than vocab_size = 7"):
        train_tokenizer(["abcdefghijk"], TextConfig(kind="unigram", vocab_size=7))
