"""Conversations as a model's template writes them, against transformers' own rendering."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from clearformer.errors import CheckpointError, DataError
from clearformer.handles import chat_template
from clearformer.handles.chat import render
from clearformer.handles.language_model import LanguageModel
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

TEMPLATE = """{%- for message in messages %}
    {{- bos_token + message['role'] + ':\n' + message['content'] | trim + eos_token }}
    {%- if loop.last %}{% break %}{% endif %}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<bos>assistant:\n' }}
{% endif %}"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    config = TextConfig(kind="byte-bpe", vocab_size=270, whitespace="keep")
    return train_tokenizer(["Who are you? I am you."] * 3, config)


@pytest.fixture(scope="module")
def writer(tokenizer: Tokenizer) -> LanguageModel:
    model = GPT(GPTConfig(vocab=tokenizer.vocab_size, n_layers=1, d_model=14, d_ff=11, n_heads=2, max_length=61))
    return LanguageModel(model, tokenizer, template=TEMPLATE, opening=[tokenizer.bos_id])


def test_a_prompt_is_a_turn_as_in_transformers(writer: LanguageModel, tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    roles = {f"{role}_token": token for role, token in tokenizer.roles.items()}
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), **roles)
    theirs.chat_template = TEMPLATE
    for prompt in ("Who are you?", " a\n\nb ", "é 12"):
        messages = [{"role": "user", "content": prompt}]
        assert render(TEMPLATE, messages, tokenizer.roles) == theirs.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        wanted: Any = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        assert writer.writer(chat=True).encode(prompt) == wanted["input_ids"]
    assert writer.writer(chat=True).encode("Who")[0] == tokenizer.bos_id != writer.writer(chat=True).encode("Who")[1]


def test_a_chat_answers_like_any_language_model(writer: LanguageModel) -> None:
    told = writer.writer(chat=True).generate(["Who are you?"], temperature=0, max_new=5)[0][0]
    assert len(told.tokens) <= 5
    assert "".join(writer.writer(chat=True).stream("Who are you?", temperature=0, max_new=5)) == told.text


def test_a_prompt_cannot_end_its_turn(writer: LanguageModel) -> None:
    with pytest.raises(DataError, match="contains the special token <eos>"):
        writer.writer(chat=True).encode("hello<eos>")
    assert writer.encode("hello<eos>")[-1] != writer.tokenizer.eos_id  # as text it never means the token


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('no user here') }}", "no user here"),
        ("{% for %}", "the chat template failed"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_a_template_that_fails_or_reaches_out_is_refused(template: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        render(template, [{"role": "user", "content": "x"}], {})


def test_a_model_without_a_template_does_not_converse(writer: LanguageModel) -> None:
    with pytest.raises(CheckpointError, match="has no chat template"):
        LanguageModel(writer.model, writer.tokenizer).writer(chat=True)


HOSTILE = {
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "takes more than 1 s",
    "{{ 'a' * 10**10 }}": "needs more than 512 MiB of memory",
    "{% for a in range(99999) %}{{ 'a' * 1000 }}{% endfor %}": "writes more than 4 Mi characters",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "calls itself without end",
    "{{ 1 / 0 }}": "division by zero",
    "{{ messages[0].content.missing.more }}": "has no attribute",
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{% if": "unexpected",
}


@pytest.mark.parametrize("template", HOSTILE)
def test_a_template_has_little_time_and_memory(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one is rendered as if nothing had been."""
    monkeypatch.setattr(chat_template, "SECONDS", 1.0)
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(CheckpointError, match=f"the chat template.*{HOSTILE[template]}.*\nhint: omit --chat"):
        render(template, messages, {})
    monkeypatch.undo()
    assert render("{{ messages[0].content }}{{ bos_token }}", messages, {"bos": "<s>"}) == "x<s>"
