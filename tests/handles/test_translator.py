import copy
from itertools import islice
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers.models import WordLevel

from clearformer.errors import DataError
from clearformer.generation.decode import DecodeConfig
from clearformer.handles.batching import by_length
from clearformer.handles.translator import Translator
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.text import TextConfig, Tokenizer
from clearformer.text.tokenizer import train_tokenizer
from clearformer.tuning.prefix import PrefixConfig, add_prefix

TEXTS = ["a cat", "the dog sat on the mat", "cats", "", "dogs eat a mat", "the", "on the mat the cat sat and sat"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    """An untrained model of characters, float64: what it says is nonsense, but always the same."""
    tokenizer = train_tokenizer(TEXTS * 2, TextConfig(kind="char", vocab_size=101))
    torch.manual_seed(5)
    config = TransformerConfig(
        source_vocab=tokenizer.vocab_size, target_vocab=tokenizer.vocab_size, n_encoder_layers=1, n_decoder_layers=2,
        d_model=22, n_heads=2, d_ff=7, share="none", max_length=61, head_bias=True,
    )  # fmt: skip
    model = Transformer(config).double()
    model.unembedding.weight.data *= 3
    model.unembedding.bias.data[tokenizer.eos_id] = 2.0
    for special in (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id):  # they have no text
        model.unembedding.bias.data[special] = -50.0
    return Translator(model, tokenizer, tokenizer, DecodeConfig(beam=3, max_extra=5))


def test_texts_come_back_in_order_and_as_if_alone(translator: Translator) -> None:
    together = translator.candidates(TEXTS, n=3)
    for text, found in zip(TEXTS, together, strict=True):
        alone = translator.candidates([text], n=3)[0]
        assert [c.text for c in found] == [c.text for c in alone]
        assert [c.score for c in found] == pytest.approx([c.score for c in alone], abs=1e-12)
    assert translator.translate(TEXTS) == [found[0].text for found in together]
    assert len(set(translator.translate(TEXTS))) > 2


def test_the_size_of_a_batch_changes_nothing(translator: Translator) -> None:
    one_by_one, together = (translator.candidates(TEXTS, n=3, tokens=tokens) for tokens in (1, 4096))
    assert [[c.tokens for c in found] for found in one_by_one] == [[c.tokens for c in found] for found in together]


def test_a_blank_is_translated_by_a_blank(translator: Translator) -> None:
    assert translator.translate([""]) == [""]
    assert translator.translate([]) == []


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 1}])
def test_a_blank_has_as_many_candidates_as_the_others(translator: Translator, settings: dict[str, Any]) -> None:
    found = translator.candidates(["a cat", ""], n=3, **settings)
    assert [len(candidates) for candidates in found] == [3, 3]
    assert [(c.text, c.score, c.logprob) for c in found[1]] == [("", 0.0, 0.0)] * 3


def test_a_string_is_one_text(translator: Translator) -> None:
    assert translator.translate("a cat") == translator.translate(["a cat"])[0]
    assert translator.candidates("a cat", n=2) == translator.candidates(["a cat"], n=2)[0]
    assert translator.score("a cat", "the cat") == translator.score(["a cat"], ["the cat"])[0]
    assert list(translator.stream("a cat")) == [translator.candidates("a cat")]


def test_more_candidates_than_beams_widen_the_beam(translator: Translator) -> None:
    found = translator.candidates(["the cat"], n=7)[0]
    assert len({tuple(c.tokens) for c in found}) == 7
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)


def test_a_stream_is_the_same_as_a_list(translator: Translator) -> None:
    endless = (TEXTS[i % len(TEXTS)] for i in range(10**9))  # more than could be read at once
    streamed = list(islice(translator.stream(endless, chunk=3), 11))
    listed = translator.candidates([TEXTS[i % len(TEXTS)] for i in range(11)])
    assert [c[0].text for c in streamed] == [c[0].text for c in listed]


def test_samples_follow_the_seed(translator: Translator) -> None:
    one, again, two = (
        [[c.text for c in found] for found in translator.candidates(TEXTS, n=5, temperature=1.0, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert one == again != two


def test_samples_are_the_same_in_any_batch_chunk_and_order(translator: Translator) -> None:
    settings: dict[str, Any] = {"n": 3, "seed": 5, "temperature": 1.0, "top_k": 7}
    expected = [[c.tokens for c in found] for found in translator.candidates(TEXTS, **settings)]
    for i, text in enumerate(TEXTS):
        assert [[c.tokens for c in found] for found in translator.candidates([text], first=i, **settings)] == [
            expected[i]
        ]
    for changed in (translator.candidates(TEXTS, tokens=1, **settings), translator.stream(TEXTS, chunk=2, **settings)):
        assert [[c.tokens for c in found] for found in changed] == expected
    twins = translator.candidates(TEXTS[:1] * 5, n=1, seed=5, temperature=1.0)
    assert len({tuple(found[0].tokens) for found in twins}) > 1, "the same text on another line is another sample"


def test_samples_are_best_first_and_no_shorter_than_asked(translator: Translator) -> None:
    for found in translator.candidates(["a cat", "the dog sat"], n=7, temperature=1.0, seed=1, min_length=4):
        assert [c.logprob for c in found] == sorted((c.logprob for c in found), reverse=True)
        assert min(len(c.tokens) for c in found) >= 4


def test_saying_what_to_sample_from_keeps_the_temperature_of_the_recipe(translator: Translator) -> None:
    model, tokenizer = translator.model, translator.source_tokenizer
    cool = Translator(model, tokenizer, tokenizer, translator.decode.changed(temperature=0.3))
    texts = TEXTS * 3
    assert cool.candidates(texts, seed=1, top_k=50) == cool.candidates(texts, seed=1, top_k=50, temperature=0.3)
    assert cool.candidates(texts, seed=1, top_k=50) != cool.candidates(texts, seed=1, top_k=50, temperature=1.0)
    assert translator.candidates(texts, seed=1, top_k=50) == translator.candidates(texts, seed=1, temperature=1.0)


def test_the_score_of_a_text_is_its_log_probability(translator: Translator) -> None:
    """Forced decoding says the same as sampling did, of every sample that ended and is spelt as it was written."""
    texts = [text for text in TEXTS if text]
    sampled = translator.candidates(texts, n=7, temperature=2.0, seed=3)
    spelt = translator.target_tokenizer.encode([c.text for found in sampled for c in found])
    limits = [min(2 * (len(text) + 1) + 5, 61) for text in texts for _ in range(7)]
    pairs = [(text, c) for text, found in zip(texts, sampled) for c in found]
    whole = [pair for pair, ids, limit in zip(pairs, spelt, limits) if pair[1].tokens == ids and len(ids) < limit]
    assert len({len(c.tokens) for _, c in whole}) > 3, "the toy should end at various lengths"
    scores = translator.score([text for text, _ in whole], [c.text for _, c in whole])
    assert scores == pytest.approx([c.logprob for _, c in whole], abs=1e-10)


def test_a_target_for_each_source(translator: Translator) -> None:
    with pytest.raises(DataError, match="2 sources and 1 target cannot be paired"):
        translator.score(["a", "cat"], ["the"])


def test_long_targets_are_cut_as_sources_are(translator: Translator) -> None:
    with pytest.warns(UserWarning, match="has 67 tokens and was cut to the first 60"):
        score = translator.score(["a cat"], ["t" * 67])
    assert score == translator.score(["a cat"], ["t" * 60])
    with pytest.warns(UserWarning, match="has 67 tokens and was cut to the first 60"):
        assert len(translator.align("a cat", "t" * 67).target) == 61


def test_alignment_shows_where_the_decoder_looked(translator: Translator) -> None:
    before = translator.model.decoder.blocks[0].cross.core
    alignment = translator.align("a cat", "the")
    assert alignment.source == [*"a▁cat", "<eos>"]
    assert alignment.target == [*"the", "<eos>"]
    assert alignment.pattern.shape == (2, 2, 4, 6)  # layers, heads, target pieces, source pieces
    assert torch.allclose(alignment.pattern.sum(-1), torch.ones(2, 2, 4, dtype=torch.float64))
    assert [t for _, t in alignment.links()] == [0, 1, 2]
    assert translator.model.decoder.blocks[0].cross.core is before


def test_alignment_leaves_every_layer_its_own_core(translator: Translator) -> None:
    tuned = copy.deepcopy(translator)
    add_prefix(tuned.model, PrefixConfig(length=3))
    layers = [layer for block in tuned.model.decoder.blocks for layer in (block.attn, block.cross)]
    before, looked = [layer.core for layer in layers], []
    hooks = [layer.prefix.register_forward_hook(lambda prefix, _, __: looked.append(prefix)) for layer in layers]
    alignment = tuned.align("a cat", "the")
    for hook in hooks:
        hook.remove()
    assert alignment.pattern.shape == (2, 2, 4, 6)  # over the source alone
    assert looked == [layer.prefix for layer in layers]  # each computed with its own
    assert [layer.core for layer in layers] == before


def test_alignment_leaves_a_learned_prefix_its_share(translator: Translator) -> None:
    """Queries of zeros look at 3 learned keys and 6 pieces alike: a ninth each."""
    tuned = copy.deepcopy(translator)
    add_prefix(tuned.model, PrefixConfig(length=3))
    for block in tuned.model.decoder.blocks:
        for parameter in block.cross.qkv.parameters():
            torch.nn.init.zeros_(parameter)
    alignment = tuned.align("a cat", "the")
    torch.testing.assert_close(alignment.pattern, torch.full((2, 2, 4, 6), 1 / 9, dtype=torch.float64))


def test_neighbours_are_other_pieces_by_cosine(translator: Translator) -> None:
    found = translator.neighbours("c", n=3)
    assert len(found) == 3
    assert "c" not in [piece for piece, _ in found]
    assert [likeness for _, likeness in found] == sorted((x for _, x in found), reverse=True)
    with pytest.raises(DataError, match="not in the source vocabulary"):
        translator.neighbours("Ж")


@pytest.mark.parametrize("special", [["<pad>", "<bos>", "<eos>", "<unk>"], ["<|endoftext|>"]])
def test_special_tokens_are_nobodys_neighbours_wherever_they_stand(translator: Translator, special: list[str]) -> None:
    """A foreign vocabulary that begins with words and ends with its special tokens."""
    names = ["a", "b", "c", "d", "e", *special]
    rust = tokenizers.Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, unk_token=special[-1]))
    foreign = Tokenizer(rust.to_str())
    found = Translator(translator.model, foreign, foreign).neighbours("b", n=100)
    pieces = [piece for piece, _ in found]
    assert {"a", "c", "d", "e"} <= set(pieces)
    assert not {"b", *names[5:]} & set(pieces)
    assert len(found) == len(translator.model.source_embedding.weight) - 1 - len(special)


def test_batches_of_alike_lengths_hold_every_text_once() -> None:
    ids = [[1] * n for n in (3, 0, 7, 2, 7, 5, 1)]
    batches = list(by_length(ids, tokens=32, width=2))
    assert [len(ids[batch[0]]) for batch in batches] == sorted((len(ids[b[0]]) for b in batches), reverse=True)
    assert sorted(row for batch in batches for row in batch) == [0, 2, 3, 4, 5, 6]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * 2 * (1 + max(len(ids[row]) for row in batch)) <= 32
    assert 1 in [row for batch in by_length(ids, 32, 2, skip_empty=False) for row in batch]
