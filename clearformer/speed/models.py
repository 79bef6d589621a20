"""Models with random weights that every library reads: a Hugging Face folder, and a CTranslate2 folder of the same.

The folder is written by our exporter and read back by our importer, so both sides compute with the same weights. The
tokenizer splits at spaces, so that a text of n words has n tokens: `t17` is token 17.
"""

from pathlib import Path
from random import Random
from typing import Any

from clearformer.speed.context import Context

SIZES = {  # width, layers per stack, heads, feed-forward width, vocabulary
    "transformer-tiny": (128, 4, 4, 256, 10_000),
    "transformer-base": (512, 6, 8, 2048, 32_768),
    "transformer-smoke": (28, 1, 2, 46, 97),  # for tests
}
GPT_SIZES = {"gpt2": (768, 12, 12, 3072, 50_257), "gpt-smoke": (28, 1, 2, 46, 97)}
EOS, UNKNOWN = 0, 1


def random_ids(batch: int, length: int, vocab: int) -> list[list[int]]:
    """Rows of ids without special tokens, the same in every process."""
    draw = Random(0)
    return [[draw.randint(3, vocab - 10) for _ in range(length)] for _ in range(batch)]


def as_text(rows: list[list[int]]) -> list[str]:
    """The texts that the tokenizer of these models turns into the ids."""
    return [" ".join(f"t{token}" for token in row) for row in rows]


def marian_folder(context: Context, size: str) -> Path:
    """Return the folder of a Marian of this size; the first call writes it. Token V − 1 is padding and the start."""
    folder = context.folder("models", size)
    if (folder / "config.json").exists():
        return folder
    from clearformer.interop.huggingface import marian
    from clearformer.models.transformer import TransformerConfig

    width, layers, heads, d_ff, vocab = SIZES[size]
    sizes = {"d_model": width, "n_heads": heads, "d_ff": d_ff, "max_length": 512, "head_bias": True, "share": "all"}
    sizes |= {"n_encoder_layers": layers, "n_decoder_layers": layers, "source_vocab": vocab, "target_vocab": vocab}
    style = {**marian.FIXED, "activation": "silu", "scale_embedding": True}
    config = TransformerConfig.parse({**sizes, **style}, "the benchmark")
    write_tokenizer(folder, vocab)
    marian.export_folder(folder, config, random_weights(config), pad=vocab - 1, eos=EOS, first=vocab - 1)
    return folder


def gpt_folder(context: Context, size: str) -> Path:
    """Return the folder of a GPT-2 of this size; the first call writes it. Token 0 is its EOS."""
    folder = context.folder("models", size)
    if (folder / "config.json").exists():
        return folder
    from clearformer.interop.huggingface import gpt2
    from clearformer.models.gpt import GPTConfig

    width, layers, heads, d_ff, vocab = GPT_SIZES[size]
    sizes = {"d_model": width, "n_heads": heads, "d_ff": d_ff, "n_layers": layers, "vocab": vocab}
    config = GPTConfig.parse(sizes, "the benchmark")
    write_tokenizer(folder, vocab)
    gpt2.export_folder(folder, config, random_weights(config), bos=EOS, eos=EOS, pad=vocab - 1)
    return folder


def random_weights(config: Any) -> dict[str, Any]:
    """Initial weights, with larger matrices in the blocks: otherwise a language model repeats a single token."""
    import torch

    from clearformer.checkpoint import weights_of
    from clearformer.models.build import build_model

    torch.manual_seed(0)
    weights = weights_of(build_model(config)).items()
    return {name: tensor * (8 if "blocks" in name and tensor.dim() == 2 else 1) for name, tensor in weights}


def token_names(vocab: int) -> list[str]:
    return ["</s>", "<unk>", *(f"t{i}" for i in range(2, vocab - 1)), "<pad>"]


def write_tokenizer(folder: Path, vocab: int) -> None:
    """Write a tokenizer of words, with the files that name its special tokens."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    from clearformer.checkpoint import write_json

    entries = {name: i for i, name in enumerate(token_names(vocab))}
    rust = tokenizers.Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.add_special_tokens(["</s>", "<pad>"])
    folder.mkdir(parents=True, exist_ok=True)
    rust.save(str(folder / "tokenizer.json"))
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **roles})


def ctranslate2_folder(context: Context, size: str) -> Path:
    """Return the same Marian for CTranslate2; the first call converts it, in another process."""
    folder = context.folder("models", f"{size}-ctranslate2")
    if not folder.exists():
        context.call("clearformer.speed.models:write_ctranslate2", size=size, out=str(folder))
    return folder


def write_ctranslate2(context: Context, size: str, out: str) -> None:
    """Convert a Marian with CTranslate2's converter."""
    from ctranslate2.converters import transformers as converters
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(marian_folder(context, size))
    loader = converters.MarianMTLoader()
    spec = loader.get_model_spec(model)
    loader.set_vocabulary(spec, token_names(SIZES[size][-1])[:-1])
    spec.config.decoder_start_token, spec.config.unk_token = "<pad>", "<unk>"
    spec.config.eos_token = spec.config.bos_token = "</s>"
    spec.validate()
    Path(out).mkdir()
    spec.save(out)
