"""Find the roles of special tokens: padding, beginning and end of text, unknown, mask.

    BERT     [PAD]   [CLS]  [SEP]  [UNK]  [MASK]        Llama 2  </s>  <s>  </s>  <unk>
    RoBERTa  <pad>   <s>    </s>   <unk>  <mask>        T5       <pad> <pad> </s> <unk>
    GPT-2    <|endoftext|> in every role; no text is unknown

`eos` is required. The other roles have defaults: padding is masked, so `eos` can stand in for `pad`; a decoder without
`bos` starts with `pad` (Raffel et al. 2020) or, if there is none, with `eos`, as after another text (Radford et al.
2019).
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.errors import TokenizerError
from clearformer.small_files import read_json

USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("<bos>", "<s>", "[CLS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("<eos>", "</s>", "[SEP]", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
SIDE_FILES = ("tokenizer_config.json", "special_tokens_map.json")  # the first file that lists a role wins
KEYS = {  # the keys of a side file, in order of preference
    "pad": ("pad_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
    "unk": ("unk_token",),
    "mask": ("mask_token",),
}


class Roles(NamedTuple):
    """The token in each role. `unk` is None if the vocabulary covers every text, `mask` if there is no mask token."""

    pad: str
    bos: str
    eos: str
    unk: str | None
    mask: str | None


def usual_roles(vocab: Collection[str], special: Collection[str] = ()) -> dict[str, str]:
    """Return a map from roles to tokens, which are recognised by their usual names.

    Only tokens that the file lists as `special` count, since "</s>" may also be ordinary text of a web page. If none of
    them is an end-of-text token, all of `vocab` is searched.
    """
    known = special if any(name in special for name in USUAL_NAMES["eos"]) else vocab
    return {role: name for role, usual in USUAL_NAMES.items() for name in reversed(usual) if name in known}


def settle(tokens: Mapping[str, str], where: str) -> Roles:
    """Return all roles, with defaults for roles missing in `tokens`; error messages call the vocabulary `where`."""
    if "eos" not in tokens:
        usual = ", ".join(USUAL_NAMES["eos"])
        raise TokenizerError(
            f"{where} has no end-of-text token",
            f'set "eos_token" in tokenizer_config.json, or use one of the usual tokens: {usual}',
        )
    eos, unk = tokens["eos"], tokens.get("unk")
    pad = tokens.get("pad", eos)
    # GPT-2's files also list <|endoftext|> as the unknown token, although its bytes cover every text.
    return Roles(pad, tokens.get("bos", pad), eos, None if unk == eos else unk, tokens.get("mask"))


def side_file_roles(folder: Path, vocab: Collection[str]) -> dict[str, str]:
    """Return a map from roles to tokens, read from the side files in `folder`: strings, or objects with a "content".

    Tokens that are not in `vocab` are skipped: the model has no embedding for them.
    """
    tokens: dict[str, str] = {}
    for table in (read_table(folder / name) for name in SIDE_FILES):
        for role, keys in KEYS.items():
            for value in map(table.get, keys):
                token = value.get("content") if isinstance(value, dict) else value
                if isinstance(token, str) and token in vocab:
                    tokens.setdefault(role, token)
    return tokens


def read_table(path: Path) -> dict[str, Any]:
    """Return the JSON object in a side file, or {} if the file does not exist."""
    try:
        table = read_json(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} cannot be read as JSON ({error})", "copy the file again") from None
    if not isinstance(table, dict):
        raise TokenizerError(
            f"{path} contains a JSON {type(table).__name__} instead of an object", "copy the file again"
        )
    return table
