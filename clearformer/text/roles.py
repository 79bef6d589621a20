"""Which token of a vocabulary pads, begins, ends, hides, or stands for what is unknown.

    BERT     [PAD]   [CLS]  [SEP]  [UNK]  [MASK]        Llama 2  </s>  <s>  </s>  <unk>
    RoBERTa  <pad>   <s>    </s>   <unk>  <mask>        T5       <pad> <pad> </s> <unk>
    GPT-2    <|endoftext|> in every role, and nothing is unknown

Every model ends its texts, so `eos` must be there. What else is missing is stood in for: padding is never looked at,
so that any token will do (eos); a decoder without a beginning of its own begins with its padding (Raffel et al. 2020),
or, where it has none, after the end of the text before (Radford et al. 2019).
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.errors import TokenizerError

USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<bos>", "<s>", "[CLS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
SIDE_FILES = ("tokenizer_config.json", "special_tokens_map.json")  # the first to name a role wins
KEYS = {  # the keys of a side file, a better one first
    "pad": ("pad_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}


class Roles(NamedTuple):
    """The token in each role. `unk` is None where every text can be spelt, `mask` where nothing is ever hidden."""

    pad: str
    bos: str
    eos: str
    unk: str | None
    mask: str | None


def usual_roles(vocab: Collection[str], special: Collection[str] = ()) -> dict[str, str]:
    """Role to token, by the usual names.

    They are looked for among the tokens that the file marks as `special`, since "</s>" may well be a piece of a web
    page; in all of `vocab` only if no end is marked.
    """
    known = special if any(name in special for name in USUAL_NAMES["eos"]) else vocab
    return {role: name for role, usual in USUAL_NAMES.items() for name in reversed(usual) if name in known}


def settle(found: Mapping[str, str], where: str) -> Roles:
    """All the roles, given the tokens that were found for some; `where` names the vocabulary in an error."""
    if "eos" not in found:
        usual = ", ".join(USUAL_NAMES["eos"])
        raise TokenizerError(f"{where} has no eos token, which ends a text", f"it is looked for as {usual}")
    eos, unk = found["eos"], found.get("unk")
    pad = found.get("pad", eos)
    # GPT-2's files name <|endoftext|> as unknown too, yet its bytes spell everything.
    return Roles(pad, found.get("bos", pad), eos, None if unk == eos else unk, found.get("mask"))


def named_beside(folder: Path, vocab: Collection[str]) -> dict[str, str]:
    """Role to token, as the side files in `folder` name them, strings or objects with a "content".

    A token that `vocab` lacks is passed over: the model has no embedding for it.
    """
    named: dict[str, str] = {}
    for table in (read_table(folder / name) for name in SIDE_FILES):
        for role, keys in KEYS.items():
            for value in map(table.get, keys):
                token = value.get("content") if isinstance(value, dict) else value
                if isinstance(token, str) and token in vocab:
                    named.setdefault(role, token)
    return named


def read_table(path: Path) -> dict[str, Any]:
    """The JSON object in a side file, empty if there is no such file."""
    try:
        table = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: cannot be read as JSON ({error})", "copy the file again") from None
    if not isinstance(table, dict):
        raise TokenizerError(f"{path}: a JSON {type(table).__name__}, not an object", "copy the file again")
    return table
