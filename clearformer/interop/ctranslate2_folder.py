"""A folder for CTranslate2: the model with its vocabulary, and the tokenizer that makes tokens of a text.

tok = tokenizers.Tokenizer.from_file("tokenizer.json")
tokens = tok.encode(text, add_special_tokens=False).tokens
ctranslate2.Translator(folder).translate_batch([tokens])          CTranslate2 adds EOS to the source
ctranslate2.Generator(folder).generate_batch([opening + tokens])  opening: the first tokens of a prompt, if any
"""

from pathlib import Path
from typing import Any

import tokenizers

from clearformer.errors import CheckpointError
from clearformer.interop import ctranslate2, ctranslate2_gpt
from clearformer.models.gpt import GPT
from clearformer.text import Tokenizer


def export_ctranslate2(opened: Any, out: Path) -> str:
    """Write the folder of a Pretrained, and return the kind of the model."""
    network, is_gpt = opened.network.float().eval(), isinstance(opened.network, GPT)
    ctranslate2.library()
    if reason := (ctranslate2_gpt if is_gpt else ctranslate2).unsupported(network):
        raise CheckpointError(f"CTranslate2 does not support {opened.name}: {reason}", "export it with --format onnx")
    out.mkdir(parents=True, exist_ok=True)
    source, target = opened.source_tokenizer, opened.target_tokenizer
    if is_gpt:
        ctranslate2_gpt.convert(network, target.eos_id, out, tokens_of(target, opened.config.vocab))
    else:
        first = int(getattr(target, f"{network.begins_with}_id"))
        tables = tokens_of(source, opened.config.source_vocab), tokens_of(target, opened.config.target_vocab)
        ctranslate2.convert(network, first, target.eos_id, out, *tables)
    if source.fingerprint() == target.fingerprint():
        target.save(out / "tokenizer.json")
    else:
        source.save(out / "source.json")
        target.save(out / "target.json")
    return str(opened.config.kind)


def tokens_of(tokenizer: Tokenizer, n: int) -> list[str]:
    """Return n tokens in the order of their ids. A published model may have more embeddings than tokens."""
    rust = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    return [rust.id_to_token(i) or f"<unused {i}>" for i in range(n)]
