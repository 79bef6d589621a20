"""An encoder–decoder as a writer, held to the translator that it is."""

import pytest
import torch

from clearformer.generation.decode import DecodeConfig
from clearformer.handles.reply import EncoderDecoderWriter
from clearformer.handles.translator import Translator
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.models.t5 import T5, T5Config
from clearformer.models.transformer import Transformer, TransformerConfig
from clearformer.text import TextConfig
from clearformer.text.tokenizer import train_tokenizer

PROMPTS = ["a cat", "the dog sat on the mat", "", "dogs eat a mat"]
ROOM = 23
STACK = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 22, "n_heads": 2, "d_ff": 7}
MODELS = {
    "transformer": (Transformer, TransformerConfig, {**STACK, "share": "none", "max_length": ROOM}),
    "t5": (T5, T5Config, {**STACK, "d_head": 5, "max_length": ROOM}),
    "seq2seq": (Seq2Seq, Seq2SeqConfig, {"d_model": 22, "d_embedding": 13, "max_length": ROOM}),
}


@pytest.fixture(scope="module", params=MODELS)
def translator(request: pytest.FixtureRequest) -> Translator:
    """Untrained models of characters, loud enough to say something, and to stop now and then."""
    kind, config, sizes = MODELS[request.param]
    tokenizer = train_tokenizer(PROMPTS * 2, TextConfig(kind="char", vocab_size=101))
    torch.manual_seed(3)
    model = kind(config(source_vocab=tokenizer.vocab_size, target_vocab=tokenizer.vocab_size, **sizes)).double()
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) / 3
    return Translator(model, tokenizer, tokenizer, DecodeConfig(beam=3))


@pytest.fixture(scope="module")
def reply(translator: Translator) -> EncoderDecoderWriter:
    return translator.writer()


def test_the_likeliest_is_what_the_translator_says(translator: Translator, reply: EncoderDecoderWriter) -> None:
    told = [found[0] for found in reply.generate(PROMPTS, temperature=0, max_new=11)]
    said = translator.candidates(["a cat", *PROMPTS[1:2], PROMPTS[3]], beam=1, max_ratio=1e-9, max_extra=11)
    assert [told[i].tokens for i in (0, 1, 3)] == [found[0].tokens for found in said]
    assert [told[i].logprob for i in (0, 1, 3)] == pytest.approx([found[0].logprob for found in said], abs=1e-9)
    beam = reply.generate(PROMPTS[:1], temperature=0, beam=3, max_new=11)[0][0]
    best = translator.candidates(PROMPTS[:1], beam=3, max_ratio=1e-9, max_extra=11)[0][0]
    assert (beam.tokens, beam.logprob) == (best.tokens, pytest.approx(best.logprob, abs=1e-9))


def test_samples_are_the_same_alone_and_together(reply: EncoderDecoderWriter) -> None:
    together = reply.generate(PROMPTS, n=3, seed=5, max_new=9)
    for i, prompt in enumerate(PROMPTS):
        alone = reply.generate([prompt], n=3, seed=5, first=i, max_new=9)[0]
        assert [c.tokens for c in alone] == [c.tokens for c in together[i]]
    assert len({c.text for found in together for c in found}) > 6


def test_a_stream_says_what_generate_says_and_stops_before(reply: EncoderDecoderWriter) -> None:
    [[whole]] = reply.generate([PROMPTS[1]], temperature=0, max_new=9)
    assert "".join(reply.stream(PROMPTS[1], temperature=0, max_new=9)) == whole.text
    stop = whole.text[3]
    [[cut]] = reply.generate([PROMPTS[1]], temperature=0, max_new=9, stop=[stop])
    assert cut.text == whole.text[: whole.text.index(stop)]


def test_only_what_was_written_counts_as_said(reply: EncoderDecoderWriter) -> None:
    """The source may hold any word: it is in another language, or is what to answer."""
    [[once]] = reply.generate([PROMPTS[1]], temperature=0, max_new=9, repetition_penalty=1e9)
    [[plain]] = reply.generate([PROMPTS[1]], temperature=0, max_new=9)
    assert once.tokens[0] == plain.tokens[0]


def test_an_answer_has_room_of_its_own(reply: EncoderDecoderWriter) -> None:
    [[found]] = reply.generate(["the dog sat on the mat"], temperature=0, max_new=999, min_length=ROOM)
    assert (len(found.tokens), found.ended) == (ROOM, "length")
