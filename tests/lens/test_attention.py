"""Patterns against those that transformers computes, and the rules that any pattern keeps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from clearformer.errors import ConfigError, DataError
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.translator import Translator
from clearformer.layers.attention import MultiHeadAttention
from clearformer.lens.attention import MOST, look
from clearformer.lens.attention_maps import attention_maps
from clearformer.lens.reading import read
from clearformer.models.rnn import RNN, RNNConfig
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.tuning.prefix import PrefixConfig, add_prefix
from clearformer.verbs.plot import load_attentive

from ..bounds import float32_bounds_of

Hub = Callable[..., Path]
TEXT, TARGET = "the man likes a cat", "le chien"
MODELS = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "bert": "BertForMaskedLM"}
PAIRED = {"marian": "MarianMTModel", "t5": "T5ForConditionalGeneration"}


def reference(kind: str, folder: Path) -> torch.nn.Module:
    made = getattr(transformers, (MODELS | PAIRED)[kind])
    return made.from_pretrained(folder, attn_implementation="eager").eval()


def ids(folder: Path, text: str) -> Tensor:
    return torch.tensor([transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]])


def told_by(theirs: torch.nn.Module, asked: Callable[[Any], Sequence[Tensor]]) -> list[tuple[Tensor, float]]:
    """The patterns that are asked for, and what rounding may do to each; the widest sum is over Llama's 28 features."""
    return [(wanted[0], bound) for wanted, bound in zip(asked(theirs), float32_bounds_of(theirs, asked, n_terms=28))]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(["a b c"] * 2, TextConfig(kind="word", min_frequency=1, vocab_size=50))


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_self_attention_is_that_of_transformers(hub: Hub, kind: str) -> None:
    folder = hub(kind)
    model = load_attentive(str(folder), "cpu")
    pieces = look(model, TEXT)["source"]
    assert (pieces if kind != "bert" else pieces[1:-1]) == TEXT.split()
    tokens = transformers.AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(pieces)
    source = torch.tensor([tokens])
    expected = told_by(reference(kind, folder), lambda theirs: theirs(source, output_attentions=True).attentions)
    for layer, (wanted, bound) in enumerate(expected):  # (H, T, T)
        told = look(model, TEXT, layer=layer)
        assert told["source"] == told["target"] == pieces
        assert (torch.tensor(told["pattern"]) - wanted).abs().max() <= bound
    assert look(model, TEXT) == told  # the last, if none is named


@pytest.mark.parametrize("kind", PAIRED)
@torch.no_grad()
def test_cross_attention_is_that_of_transformers(hub: Hub, kind: str) -> None:
    folder = hub(kind)
    theirs, end = reference(kind, folder), torch.zeros(1, 1, dtype=torch.long)
    start = torch.full((1, 1), theirs.config.decoder_start_token_id)
    source, target = torch.cat([ids(folder, TEXT), end], 1), torch.cat([start, ids(folder, TARGET)], 1)
    found = told_by(
        theirs, lambda other: other(source, decoder_input_ids=target, output_attentions=True).cross_attentions
    )
    told = look(load_attentive(str(folder), "cpu"), TEXT, TARGET)
    assert (told["source"], told["target"]) == ([*TEXT.split(), "<eos>"], [*TARGET.split(), "<eos>"])
    assert told["layer"] == str(len(found) - 1)
    wanted, bound = found[-1]
    assert (torch.tensor(told["pattern"]) - wanted).abs().max() <= bound


@pytest.mark.parametrize("kind", PAIRED)
@torch.no_grad()
def test_an_encoder_reads_the_source_as_that_of_transformers(hub: Hub, kind: str) -> None:
    folder = hub(kind)
    source = torch.cat([ids(folder, TEXT), torch.zeros(1, 1, dtype=torch.long)], 1)
    theirs = reference(kind, folder).get_encoder()  # type: ignore[operator]
    expected = told_by(theirs, lambda other: other(source, output_attentions=True).attentions)
    model = load_attentive(str(folder), "cpu")
    for layer, (wanted, bound) in enumerate(expected):
        told = look(model, TEXT, layer=f"encoder.{layer}")
        assert told["source"] == told["target"] == [*TEXT.split(), "</s>"]
        assert (torch.tensor(told["pattern"]) - wanted).abs().max() <= bound
    with pytest.raises(ConfigError, match=r"hub has no layer `encoder\.2`") as caught:
        look(model, TEXT, layer="encoder.2")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("its layers are encoder.0 to encoder.1, or encoder.blocks.0.attn, ")
    with pytest.raises(ConfigError, match="hub is not a translation model"):
        look(model, TEXT, TARGET, layer="encoder.0")


@pytest.mark.parametrize("kind", ["gpt2", "bert", "marian", "t5"])
def test_layers_have_the_names_of_the_lens_too(hub: Hub, kind: str) -> None:
    """Every layer that `lens attention` shows, with its own rows and columns."""
    model = load_attentive(str(hub(kind)), "cpu")
    target = TARGET if isinstance(model, Translator) else None
    for expected in attention_maps(read(model, TEXT, target))["layers"]:
        name = expected["name"]
        is_encoder = target is not None and name.startswith("encoder.")
        for layer in (name, f"{name}.pattern"):
            told = look(model, TEXT, None if is_encoder else target, layer)
            assert told["layer"] == layer
            assert told["pattern"] == expected["pattern"]
            assert (len(told["target"]), len(told["source"])) == (len(expected["rows"]), len(expected["columns"]))
            if not is_encoder:  # whose last piece is written as the end of the source
                assert (told["target"], told["source"]) == (expected["rows"], expected["columns"])


def test_a_translator_looks_while_it_writes_its_own_translation(hub: Hub) -> None:
    model = load_attentive(str(hub("marian")), "cpu")
    assert look(model, TEXT) == look(model, TEXT, model.translate([TEXT])[0]) != look(model, TEXT, TARGET)


def test_rows_sum_to_one_and_a_gpt_sees_nothing_ahead(hub: Hub) -> None:
    for kind in ("gpt2", "bert", "marian"):
        pattern = torch.tensor(look(load_attentive(str(hub(kind, name=kind)), "cpu"), TEXT)["pattern"])
        torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:2]))
        assert pattern.triu(1).any() == (kind != "gpt2")


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_learned_prefix_takes_its_share_and_is_not_shown(hub: Hub, kind: str) -> None:
    """Queries of zeros look alike at 7 learned keys and at the t pieces that they may see."""
    model = load_attentive(str(hub(kind)), "cpu")
    add_prefix(model.model, PrefixConfig(length=7))
    for module in model.model.modules():
        if isinstance(module, MultiHeadAttention):
            for parameter in module.qkv.parameters():
                torch.nn.init.zeros_(parameter)
    told = look(model, TEXT)
    pattern, n = torch.tensor(told["pattern"]), len(told["source"])
    seen = torch.ones(n, n).tril() if kind == "gpt2" else torch.ones(n, n)
    torch.testing.assert_close(pattern, (seen / (7 + seen.sum(1, keepdim=True))).expand_as(pattern))


def test_bahdanaus_alignment_is_one_layer_of_one_head(tokenizer: Tokenizer) -> None:
    V = tokenizer.vocab_size
    model = Seq2Seq(Seq2SeqConfig(source_vocab=V, target_vocab=V, d_model=7, attention="additive"))
    told = look(Translator(model, tokenizer, tokenizer), "a b c", "b a")
    pattern = torch.tensor(told["pattern"])
    assert (told["layer"], pattern.shape) == ("0", (1, 3, 4))
    torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 3))
    with pytest.raises(ConfigError, match="model has no attention layers to show"):
        look(Translator(model, tokenizer, tokenizer), "a b c", layer="encoder.0")  # which is recurrent


def test_what_cannot_be_shown_is_said(hub: Hub, tokenizer: Tokenizer) -> None:
    gpt = load_attentive(str(hub("gpt2", n_positions=MOST + 3)), "cpu")
    for layer in ("2", "-1", "last", "encoder.0", 7):
        with pytest.raises(ConfigError, match=f"hub has no layer `{layer}`"):
            look(gpt, TEXT, layer=layer)
    with pytest.raises(ConfigError, match="hub is not a translation model"):
        look(gpt, TEXT, TARGET)
    assert len(look(gpt, "a " * MOST)["source"]) == MOST
    with pytest.raises(DataError, match=f"the text has {MOST + 1} tokens; a figure can show at most {MOST}"):
        look(gpt, "a " * (MOST + 1))
    lstm = LanguageModel(RNN(RNNConfig(vocab=tokenizer.vocab_size, d_model=7)), tokenizer, name="lstm")
    with pytest.raises(ConfigError, match="lstm has no attention layers to show"):
        look(lstm, "a b")
