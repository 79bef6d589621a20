"""Small models and tokenizers of other libraries: Hugging Face folders, .gguf, .pth and .safetensors files."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

WORDS = ["</s>", "<unk>", "<s>", "the", "a", "dog", "cat", "man", "sees", "likes", "tree", "<pad>"]
PAD = len(WORDS) - 1
V = len(WORDS) + 2
SIDE = {"pad_token_id": PAD, "eos_token_id": 0, "decoder_start_token_id": PAD}
STACK = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
BERT = {"hidden_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 11}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": (
        "MarianMTModel",
        {"vocab_size": V, "d_model": 14, "encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "max_position_embeddings": 37,
         "forced_eos_token_id": None, **STACK, **SIDE},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": V, "d_model": 14, "num_layers": 1, "num_heads": 3, "d_kv": 5, "d_ff": 11, **SIDE},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": V, "n_embd": 14, "n_layer": 1, "n_head": 2, "n_positions": 37, "eos_token_id": 0,
         "bos_token_id": 0},
    ),
    "llama": (
        "LlamaForCausalLM",
        {"vocab_size": V, "hidden_size": 28, "intermediate_size": 11, "num_hidden_layers": 1, "num_attention_heads": 2,
         "max_position_embeddings": 37, "eos_token_id": 0, "bos_token_id": 2},
    ),
    "bert": ("BertForMaskedLM", {"vocab_size": V, "max_position_embeddings": 37, **BERT}),
    "roberta": (
        "RobertaForSequenceClassification",
        {"vocab_size": V, "max_position_embeddings": 37, "pad_token_id": 1, **BERT},
    ),
    "vit": ("ViTForImageClassification", {"image_size": 8, "patch_size": 4, **BERT}),
}  # fmt: skip
FACTS = {
    "llama.block_count": 1, "llama.embedding_length": 12, "llama.feed_forward_length": 5,
    "llama.attention.head_count": 2, "llama.attention.head_count_kv": 2, "llama.context_length": 11,
    "llama.attention.layer_norm_rms_epsilon": 2**-17, "llama.rope.freq_base": 700.0, "llama.rope.dimension_count": 6,
}  # fmt: skip
SIZES = {"char": 40, "word": 40, "bpe": 50, "wordpiece": 50, "unigram": 24, "byte-bpe": 300}
TOKENS = ["<first>", "<last>", "Ġ", *"abcdefghijkl", "ab", "abc"]


def write(folder: Path) -> dict[str, Path]:
    """Write every model, and llama again in shards and as a pickle."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    paths = {}
    for name, (kind, config) in MODELS.items():
        torch.manual_seed(0)
        made = getattr(transformers, kind)
        network = made(made.config_class(**config))
        network.save_pretrained(folder / name)
        if name != "vit":
            word_tokenizer(folder / name)
        paths[name] = folder / name
        if name == "llama":
            for other in ("shards", "pickle"):
                paths[other] = Path(shutil.copytree(folder / name, folder / other))
                (paths[other] / "model.safetensors").unlink()
            network.save_pretrained(paths["shards"], max_shard_size="4KB")
            torch.save(network.state_dict(), paths["pickle"] / "pytorch_model.bin")
    return paths


def word_tokenizer(folder: Path) -> None:
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    rust = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rust.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 0)])
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=rust, **roles).save_pretrained(folder)


def write_tokenizers(folder: Path) -> list[Path]:
    """Write tokenizers of every kind of our own, and the vocabulary files of BERT and GPT-2."""
    from clearformer.text import TextConfig, train_tokenizer

    texts = ["the dog sees a tree", "the cat likes the river", "a man hears a book"] * 3
    paths = []
    for kind in SIZES:
        path = folder / kind
        path.mkdir(parents=True)
        tokenizer = train_tokenizer(texts, TextConfig.parse({"kind": kind, "vocab_size": SIZES[kind]}))
        (path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        paths.append(path)
    (folder / "bert").mkdir()
    (folder / "bert" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]))
    (folder / "bert" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 37}))
    (folder / "gpt").mkdir()
    vocab = {token: i for i, token in enumerate(["<|endoftext|>", *"abcdefgh", "Ġ", "ab", "abc"])}
    (folder / "gpt" / "vocab.json").write_text(json.dumps(vocab))
    (folder / "gpt" / "merges.txt").write_text("#version: 0.2\na b\nab c\n")
    return [*paths, folder / "bert", folder / "gpt"]


def write_files(folder: Path) -> list[Path]:
    """Write a model as .gguf, and another as .pth (zip and the older format) and .safetensors."""
    import gguf
    from safetensors.torch import save_file

    from clearformer.checkpoint import weights_of
    from clearformer.interop.torchvision.convert import export_weights
    from clearformer.models.build import build_model, parse_model

    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for name, value in FACTS.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(name, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (len(TOKENS) - 2)])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    shapes = {"attn_q": (12, 12), "attn_k": (12, 12), "attn_v": (12, 12), "attn_output": (12, 12), "attn_norm": (12,)}
    shapes |= {"ffn_norm": (12,), "ffn_gate": (5, 12), "ffn_up": (5, 12), "ffn_down": (12, 5)}
    tensors = {f"blk.0.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    tensors |= {"token_embd.weight": torch.randn(len(TOKENS), 12), "output_norm.weight": torch.ones(12)}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    sizes = {"kind": "resnet", "block": "basic", "depths": [1, 1], "widths": [3, 5], "stem_width": 3, "n_classes": 5}
    network = build_model(parse_model(sizes, "[model]"))
    theirs = {name: tensor.contiguous() for name, tensor in export_weights(weights_of(network), network.config).items()}
    torch.save(theirs, folder / "zip.pth")
    torch.save(theirs, folder / "old.pth", _use_new_zipfile_serialization=False)
    save_file(theirs, folder / "model.safetensors")
    return sorted(folder.iterdir())
