"""A language model fine-tuned for chat: each prompt becomes one turn of a conversation.

    prompt  ->  the model's Jinja chat template  ->  text with special tokens  ->  ids

The template is untrusted code from the model's files, so it runs in Jinja's sandbox, where it can only format text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from clearformer.errors import CheckpointError, DataError, MachineError
from clearformer.handles.writer import Writer


class Chat(Writer):
    """A language model whose `generate` and `stream` answer the prompt instead of continuing it."""

    kind = "a chat model"

    def __init__(self, writer: Writer, template: str | None) -> None:
        if template is None:
            raise CheckpointError(f"{writer.name} has no chat template: it can only continue text", "omit --chat")
        super().__init__(writer.model, writer.tokenizer, writer.decode, writer.name)
        self.decoder = writer.decoder
        self.template = template

    def encode(self, prompt: str) -> list[int]:
        """Encode the prompt as a user turn of a conversation."""
        return self.encode_messages([{"role": "user", "content": prompt}])

    def encode_messages(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Encode a conversation, up to the point where the answer begins: messages with `role` and `content`.

        The messages may not contain special tokens, which could end a turn and start another.
        """
        for message in messages:
            if specials := [token for token in self.tokenizer.specials if token in message["content"]]:
                what = "prompt" if len(messages) == 1 else "conversation"
                raise DataError(
                    f"the {what} contains the special token {specials[0]}", f"remove {specials[0]} from the {what}"
                )
        text = render(self.template, messages, self.tokenizer.roles)
        ids = self.tokenizer.encode_marked(text)
        self.require_fit(len(ids), messages[-1]["content"])
        return ids


def render(template: str, messages: Sequence[Mapping[str, str]], roles: Mapping[str, str]) -> str:
    """Format a conversation with the chat template, up to the point where the model's answer begins."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise MachineError("chat templates require the package jinja2", "pip install jinja2") from None

    def refuse(reason: str) -> NoReturn:
        raise TemplateError(reason)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    try:
        return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **tokens)
    except TemplateError as error:
        raise CheckpointError(
            f"the chat template failed: {error}", "omit --chat to continue the prompt instead"
        ) from None
