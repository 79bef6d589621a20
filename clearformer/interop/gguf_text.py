"""Convert the tokenizer in a GGUF file to a tokenizer.json. It must be byte-level BPE, which GGUF calls `gpt2`.

tokenizer.ggml.tokens, .merges        the vocabulary and the merges of BPE
tokenizer.ggml.token_type             3: special token, 4: user-defined token, others: ordinary tokens
tokenizer.ggml.pre                    name of the pre-tokenizer, which splits text into words before merging
tokenizer.ggml.bos_token_id …         ids of special tokens: BOS, EOS, padding
tokenizer.ggml.add_bos_token          whether every text starts with BOS
tokenizer.chat_template               chat template, in Jinja
"""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from clearformer.errors import CheckpointError
from clearformer.text import Tokenizer
from clearformer.wording import listed

CONTROL, USER_DEFINED = 3, 4
ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
DIGITS = ("smollm", "starcoder", "refact", "command-r")  # split digits one by one, then words as GPT-2 does
LLAMA3 = (  # Dubey et al. 2024: keeps up to three digits together, and a word with the symbol before it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SUPPORTED = ("gpt-2", *DIGITS, "llama-bpe")


def import_tokenizer(facts: Mapping[str, Any], where: str) -> Tokenizer:
    """Build the tokenizer that the metadata of a GGUF file describes."""
    settings = {name.removeprefix("tokenizer.ggml."): value for name, value in facts.items()}
    if settings.get("model") != "gpt2":
        raise CheckpointError(
            f"{where}: unsupported tokenizer model `{settings.get('model')}`",
            "only byte-level BPE (`gpt2`) can be imported",
        )
    for name in ("tokens", "merges", "eos_token_id"):
        if name not in settings:
            raise CheckpointError(f"{where} lacks `tokenizer.ggml.{name}`", "download the file again")
    tokens: list[str] = settings["tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in settings["merges"]]
    pre = settings.get("pre", "gpt-2")
    try:
        model = models.BPE({token: i for i, token in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the Rust library raises nothing more precise
        raise CheckpointError(
            f"{where}: the merges do not match the tokens: {error}", "download the file again"
        ) from None
    rust = tokenizers.Tokenizer(model)
    rust.pre_tokenizer = pre_tokenizer(pre, where)
    rust.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, settings.get("token_type", [])):
        if kind == CONTROL:
            rust.add_special_tokens([AddedToken(token, normalized=False)])
        elif kind == USER_DEFINED:
            rust.add_tokens([AddedToken(token, normalized=False)])
    roles = {role: tokens[settings[key]] for role, key in ROLES.items() if key in settings}
    if settings.get("add_bos_token") and "bos" in roles:
        bos = roles["bos"]
        rust.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, settings["bos_token_id"])]
        )
    content = json.loads(rust.to_str())
    content["model"]["roles"] = roles
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=2), where)


def pre_tokenizer(pre: str, where: str) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer called `pre`, which splits text into words before BPE."""
    if pre == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre == "llama-bpe":
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise CheckpointError(f"{where}: unsupported pre-tokenizer `{pre}`", f"the supported ones are {listed(SUPPORTED)}")
