"""A language model writes and scores: through a real tokenizer, with a small random GPT."""

import pytest
import torch

from clearformer.errors import DataError
from clearformer.generation.sampling import repetition
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.writer import Continuation, cut
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

LINES = ["The man pulled a cart.", "The king arrived tired.", "A cat eats the mouse!", "नमस्ते दुनिया", "one two three"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(LINES * 3, TextConfig(kind="bpe", vocab_size=120, strict=False))


@pytest.fixture
def writer(tokenizer: Tokenizer) -> LanguageModel:
    torch.manual_seed(1)
    config = GPTConfig(
        vocab=tokenizer.vocab_size,
        n_layers=2,
        d_model=22,
        d_ff=13,
        n_heads=2,
        max_length=41,
        tied=False,
        head_bias=True,
    )
    model = GPT(config).double().eval()
    model.unembedding.weight.data *= 60  # loud enough that words differ
    return LanguageModel(model, tokenizer)


def test_greedy_writing_is_the_argmax_of_one_pass_each_time(writer: LanguageModel) -> None:
    found = writer.generate(["The man", "A cat eats the"], max_new=7)
    for prompt, (told,) in zip(["The man", "A cat eats the"], found):
        ids = writer.tokenizer.encode([prompt])[0]
        for token, logprob in zip(told.tokens, told.logprobs):
            with torch.no_grad():
                state = writer.model.start(torch.tensor([ids[:-1]]), None)
                logits, _ = writer.model.step(torch.tensor([ids[-1:]]), state)
            assert token == int(logits[0, 0].argmax())
            assert logprob == pytest.approx(float(logits[0, 0].log_softmax(-1)[token]), abs=1e-9)
            ids.append(token)


def test_prompts_of_any_length_are_written_alike_together_and_alone(writer: LanguageModel) -> None:
    prompts = ["", "The", "A cat eats the mouse! one two", "king arrived"]
    settings = {"temperature": 1.3, "seed": 5, "max_new": 9, "top_p": 0.9}
    together = writer.generate(prompts, n=3, **settings)
    for i, prompt in enumerate(prompts):
        alone = writer.generate([prompt], n=3, first=i, **settings)[0]
        assert [told.tokens for told in alone] == [told.tokens for told in together[i]]
        assert [told.logprob for told in alone] == pytest.approx([told.logprob for told in together[i]], abs=1e-9)


def test_a_stream_is_the_text_in_pieces(writer: LanguageModel) -> None:
    for prompt in ("The man", "नमस्ते", ""):
        whole = writer.generate([prompt], max_new=12)[0][0]
        pieces = list(writer.stream(prompt, max_new=12))
        assert "".join(pieces) == whole.text
        assert len(pieces) > 3


def test_text_goes_on_where_the_prompt_ended(writer: LanguageModel) -> None:
    """ " cart" keeps its space, so that prompt and continuation can be put together."""
    prompt = "The man"
    told = writer.generate([prompt], max_new=9)[0][0]
    ids = writer.tokenizer.encode([prompt])[0]
    assert prompt + told.text == writer.tokenizer.decode([ids + told.tokens])[0]


def test_writing_stops_before_a_stop_string(writer: LanguageModel) -> None:
    free = writer.generate(["The man"], max_new=12)[0][0]
    assert len(free.text) > 6
    stop = free.text[4:6]
    at = free.text.index(stop)
    told = writer.generate(["The man", "A"], max_new=12, stop=["☃", stop])[0][0]
    assert (told.text, told.ended) == (free.text[:at], "stop")
    assert len(told.tokens) < len(free.tokens), "it stopped writing, rather than being cut afterwards"
    assert "".join(writer.stream("The man", max_new=12, stop=["☃", stop])) == told.text


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_clear(writer: LanguageModel) -> None:
    """Nothing is handed out that would have to be taken back, and nothing is lost if the string is not completed."""
    free = writer.generate(["The man"], max_new=12)[0][0].text
    never = free[-3:] + "☃"
    assert "".join(writer.stream("The man", max_new=12, stop=[never])) == free


def test_it_ends_at_eos_at_the_limit_and_at_the_end_of_its_positions(writer: LanguageModel) -> None:
    assert writer.generate(["The"], max_new=5)[0][0].ended == "length"
    long = writer.generate(["The man pulled a cart."], max_new=999, min_length=999)[0][0]
    n_prompt = len(writer.tokenizer.encode(["The man pulled a cart."])[0])
    assert (long.ended, n_prompt + len(long.tokens)) == ("length", 41 + 1)
    writer.model.unembedding.bias.data[writer.tokenizer.eos_id] = 999.0
    assert writer.generate(["The"], max_new=5)[0] == [Continuation("", [], pytest.approx(0.0, abs=1e-9), [], "eos")]


def test_a_beam_finds_at_least_what_greedy_finds(writer: LanguageModel) -> None:
    for prompt in ("The", "A cat"):
        greedy = writer.generate([prompt], max_new=6, min_length=6)[0][0]
        beam = writer.generate([prompt], max_new=6, min_length=6, beam=5, n=3)[0]
        assert [told.logprob for told in beam] == sorted((told.logprob for told in beam), reverse=True)
        assert beam[0].logprob >= greedy.logprob - 1e-9


def test_a_penalty_makes_it_repeat_itself_less(writer: LanguageModel) -> None:
    def distinct(penalty: float) -> int:
        return len(set(writer.generate(["The"], max_new=30, min_length=30, repetition_penalty=penalty)[0][0].tokens))

    assert distinct(50.0) > distinct(1.0)


def test_the_penalty_is_the_one_of_hugging_face() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits, prompts, written = torch.randn(2, 3, 11), [[4, 7], [1]], torch.randint(11, (2, 3, 5))
    adjust = repetition(1.7, prompts)
    assert adjust is not None
    ours = adjust(logits, torch.arange(2), written)
    theirs = RepetitionPenaltyLogitsProcessor(1.7)
    for b in range(2):
        for w in range(3):
            seen = torch.tensor([[*prompts[b], *written[b, w].tolist()]])
            assert ours[b, w].equal(theirs(seen, logits[b, w][None])[0])


def test_a_score_is_the_sum_of_log_probabilities(writer: LanguageModel) -> None:
    texts = ["The man pulled a cart.", "tired", "A cat"]
    tok = writer.tokenizer
    for text, scored, closed in zip(texts, writer.score(texts), writer.score(texts, closed=True)):
        ids = tok.encode([text])[0]
        state, total = writer.model.start(torch.zeros(1, 0, dtype=torch.long), None), 0.0
        for before, token in zip([tok.bos_id, *ids], [*ids, tok.eos_id]):
            with torch.no_grad():
                logits, state = writer.model.step(torch.tensor([[before]]), state)
            last = float(logits[0, 0].log_softmax(-1)[token])
            total += last
        assert closed.logprob == pytest.approx(total, abs=1e-9)
        assert scored.logprob == pytest.approx(total - last, abs=1e-9)
        assert (scored.tokens, closed.tokens) == (len(ids), len(ids) + 1)
        assert scored.perplexity == pytest.approx(2.718281828459045 ** (-scored.logprob / len(ids)))


def test_what_is_written_scores_as_it_was_written(writer: LanguageModel) -> None:
    """The opening is read, not scored: log p of prompt and continuation, less that of the prompt."""
    model = LanguageModel(writer.model, writer.tokenizer, opening=[writer.tokenizer.bos_id])
    told = model.generate(["The man"], max_new=4)[0][0]
    both, prompt = model.score(["The man" + told.text, "The man"])
    if writer.tokenizer.encode(["The man" + told.text])[0] == writer.tokenizer.encode(["The man"])[0] + told.tokens:
        assert both.logprob - prompt.logprob == pytest.approx(told.logprob, abs=1e-9)


def test_a_prompt_without_room_is_refused(writer: LanguageModel) -> None:
    with pytest.raises(DataError, match="tokens, but model reads at most 41") as caught:
        writer.generate(["one two three " * 30])
    assert caught.value.hint
    with pytest.raises(DataError, match="reads at most 41"):
        writer.score(["one two three " * 30])
    with pytest.raises(DataError, match="reads at most 41"):
        writer.generate("one two three " * 30)


def test_cut() -> None:
    assert cut("abcdef", ["de", "c"]) == 2
    assert cut("abcdef", ["x", ""]) == 6
