"""A language model fine-tuned for chat: each prompt becomes one turn of a conversation.

    prompt  ->  the model's Jinja chat template  ->  text with special tokens  ->  ids

The template is untrusted code from the model's files. It runs in Jinja's sandbox, where it can only format text, in a
process with little time and memory (chat_template.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.errors import CheckpointError, DataError
from clearformer.handles.chat_template import RENDERER
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
    tokens: dict[str, Any] = {f"{role}_token": token for role, token in roles.items()}
    values = {"messages": [dict(message) for message in messages], "add_generation_prompt": True, **tokens}
    return RENDERER.render(template, values)
