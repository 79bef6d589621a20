"""A language model that was taught to answer: each prompt is written as one turn of a conversation.

    prompt  ->  template, in the Jinja language, as the model's makers wrote it  ->  text with special tokens  ->  ids

The template is a program from elsewhere, so it runs in Jinja's sandbox: it can shape text and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from clearformer.errors import CheckpointError, DataError, MachineError
from clearformer.handles.writer import Writer


class Chat(Writer):
    """`generate` and `stream` answer the prompt instead of continuing it."""

    kind = "a chat model"

    def __init__(self, writer: Writer, template: str | None) -> None:
        if template is None:
            raise CheckpointError(f"{writer.name} has no chat template: it only continues text", "leave --chat out")
        super().__init__(writer.model, writer.tokenizer, writer.decode, writer.name)
        self.template = template

    def encode(self, prompt: str) -> list[int]:
        """The prompt in its turn. It may not name special tokens: they would end the turn, and begin another."""
        if named := [token for token in self.tokenizer.specials if token in prompt]:
            raise DataError(f"the prompt spells the special token {named[0]}", "write it in another way")
        text = render(self.template, [{"role": "user", "content": prompt}], self.tokenizer.roles)
        ids = self.tokenizer.encode_marked(text)
        self.require_room(len(ids), prompt)
        return ids


def render(template: str, messages: Sequence[Mapping[str, str]], roles: Mapping[str, str]) -> str:
    """A conversation as text, ending where the model is to answer."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise MachineError("chat templates need the package jinja2", "pip install jinja2") from None

    def refuse(reason: str) -> NoReturn:
        raise TemplateError(reason)

    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    world.globals["raise_exception"] = refuse
    named: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    try:
        return world.from_string(template).render(messages=messages, add_generation_prompt=True, **named)
    except TemplateError as error:
        raise CheckpointError(f"the chat template cannot be used: {error}", "leave --chat out") from None
