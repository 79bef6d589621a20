"""The tokenizer inside a GGUF file, as a tokenizer.json: byte-level BPE, which the format calls the model `gpt2`.

tokenizer.ggml.tokens, .merges        the vocabulary
tokenizer.ggml.token_type             3 is a special token, 4 one that a user added, the others are pieces of text
tokenizer.ggml.pre                    by name, how text is cut into words before any merge
tokenizer.ggml.bos_token_id …         which token has which role
tokenizer.ggml.add_bos_token          whether every text begins with BOS
tokenizer.chat_template               how a conversation is written
"""

import json
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from clearformer.errors import CheckpointError
from clearformer.text import Tokenizer

CONTROL, USER_DEFINED = 3, 4
ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}
DIGITS = ("smollm", "starcoder", "refact", "command-r")  # GPT-2's words, after every digit was set apart
LLAMA3 = (  # Dubey et al. 2024: up to three digits together, and a word with the one sign before it
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KNOWN = ("gpt-2", *DIGITS, "llama-bpe")


def import_tokenizer(facts: Mapping[str, Any], where: str) -> Tokenizer:
    """The tokenizer that the facts of a file describe."""
    told = {name.removeprefix("tokenizer.ggml."): value for name, value in facts.items()}
    if told.get("model") != "gpt2":
        raise CheckpointError(
            f"{where} has a tokenizer of the kind `{told.get('model')}`", "only byte-level BPE, `gpt2`, can be imported"
        )
    for name in ("tokens", "merges", "eos_token_id"):
        if name not in told:
            raise CheckpointError(f"{where} lacks `tokenizer.ggml.{name}`", "is it the first file of a split model?")
    tokens: list[str] = told["tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in told["merges"]]
    pre = told.get("pre", "gpt-2")
    try:
        model = models.BPE({token: i for i, token in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # the Rust library raises nothing more precise
        raise CheckpointError(f"{where}: its merges do not fit its tokens: {error}", "download it again") from None
    rust = tokenizers.Tokenizer(model)
    rust.pre_tokenizer = words(pre, where)
    rust.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, told.get("token_type", [])):
        if kind == CONTROL:
            rust.add_special_tokens([AddedToken(token, normalized=False)])
        elif kind == USER_DEFINED:
            rust.add_tokens([AddedToken(token, normalized=False)])
    roles = {role: tokens[told[key]] for role, key in ROLES.items() if key in told}
    if told.get("add_bos_token") and "bos" in roles:
        bos = roles["bos"]
        rust.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, told["bos_token_id"])]
        )
    content = json.loads(rust.to_str())
    content["model"]["roles"] = roles
    return Tokenizer(json.dumps(content, ensure_ascii=False, indent=2), where)


def words(pre: str, where: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut before it is merged."""
    if pre == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in DIGITS:
        apart = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([apart, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre == "llama-bpe":
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise CheckpointError(f"{where} cuts text by the rules of `{pre}`, which are not known", f"known are: {KNOWN}")
