"""Write a tokenizer for Hugging Face's AutoTokenizer.

    tokenizer.json           how text is split into tokens, and which special tokens are added
    tokenizer_config.json    the special token for each role: BOS, EOS, padding …

In Clearformer, the model adds special tokens to a text. The exported tokenizer adds them instead: EOS after a source
text, BOS and EOS around a text for BERT, none around a prompt.
"""

import json
from pathlib import Path
from typing import Any

from clearformer.checkpoint import write_json, write_text
from clearformer.text import Tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: Any, is_pair: bool) -> None:
    content, roles = json.loads(tokenizer.to_json()), tokenizer.roles
    if not tokenizer.adds_specials and config.kind != "gpt":
        content["post_processor"] = special_token_template(tokenizer, "" if is_pair else roles["bos"], roles["eos"])
    has_segments = getattr(getattr(config, "base", config), "n_segments", 0) > 1
    write_text(folder / "tokenizer.json", json.dumps(content, ensure_ascii=False, indent=2))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{role}_token": token for role, token in roles.items()},
            "model_max_length": config.max_length,
            "model_input_names": ["input_ids", *(["token_type_ids"] if has_segments else []), "attention_mask"],
            "clean_up_tokenization_spaces": False,
        },
    )


def special_token_template(tokenizer: Tokenizer, before: str, after: str) -> dict[str, Any]:
    """Build the post-processor that appends `after` to every text and prepends `before`, if any, to the first text."""

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
