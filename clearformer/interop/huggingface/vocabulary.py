"""A tokenizer of ours as AutoTokenizer reads it.

    tokenizer.json           how text is cut, and what stands around it
    tokenizer_config.json    which token has which role

What stands around a text goes into the file, since our own tokenizers leave it to the model: a source ends with EOS,
a text for BERT stands between BOS and EOS, and a prompt stands as it is.
"""

import json
from pathlib import Path
from typing import Any

from clearformer.checkpoint import write_json, write_text
from clearformer.text import Tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: Any, is_pair: bool) -> None:
    content, roles = json.loads(tokenizer.to_json()), tokenizer.roles
    if not tokenizer.is_framed and config.kind != "gpt":
        content["post_processor"] = frame(tokenizer, "" if is_pair else roles["bos"], roles["eos"])
    write_text(folder / "tokenizer.json", json.dumps(content, ensure_ascii=False, indent=2))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{role}_token": token for role, token in roles.items()},
            "model_max_length": config.max_length,
            "clean_up_tokenization_spaces": False,
        },
    )


def frame(tokenizer: Tokenizer, before: str, after: str) -> dict[str, Any]:
    """The post-processor that puts a token after every text, and before the first."""

    def text(name: str, kind: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": kind}}, {"SpecialToken": {"id": after, "type_id": kind}}]

    start = [{"SpecialToken": {"id": before, "type_id": 0}}] if before else []
    return {
        "type": "TemplateProcessing",
        "single": [*start, *text("A", 0)],
        "pair": [*start, *text("A", 0), *text("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [tokenizer.id_of(token)], "tokens": [token]} for token in {before, after} - {""}
        },
    }
