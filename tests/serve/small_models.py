"""Small models with random weights, as run folders: one of each kind that a server knows."""

from pathlib import Path
from typing import Any

import torch

from clearformer.checkpoint import weights_of
from clearformer.data.pixels import ImageConfig
from clearformer.data.sound import SoundConfig
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

LINES = [
    "The dog sees a tree, it's 12 metres high.",
    "A man likes the river; a cat hears the book?",
    "A good film.",
] * 5
STACK: dict[str, Any] = {"d_model": 28, "d_ff": 46, "n_heads": 2, "max_length": 97}
RESNET = {"block": "basic", "depths": (1, 2), "widths": (7, 10), "stem": "3x3", "stem_width": 5}
TEMPLATE = (
    "{% for message in messages %}{{ bos_token + message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token + 'assistant:' }}{% endif %}"
)
CLASSES = ["bad", "good", "neither"]


def byte_tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, TextConfig(kind="byte-bpe", vocab_size=301, strict=False, min_frequency=1))


def word_tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


def write_model(
    out: Path,
    table: dict[str, Any],
    tokenizer: Tokenizer | list[Tokenizer] | None,
    template: str | None = None,
    classes: list[str] | None = None,
    seed: int = 0,
    **tables: Any,
) -> Path:
    """Write a run folder with random weights of the architecture in `table`."""
    tokenizers = tokenizer if isinstance(tokenizer, list) else [] if tokenizer is None else [tokenizer]
    if isinstance(tokenizer, Tokenizer):
        sizes = {"vocab": tokenizer.vocab_size}
        table = {**table, "base": {**table["base"], **sizes}} if "base" in table else {**table, **sizes}
    config = parse_model(table, "[model]")
    torch.manual_seed(seed)
    network = build_model(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    recipe = foreign_recipe(config, Origin(source="nowhere"), tables.pop("image", None)).with_tables(**tables)
    write_run(out, recipe, weights_of(network), tokenizers, template, classes)
    return out


def write_gpt(out: Path, seed: int = 0) -> Path:
    return write_model(out, {"kind": "gpt", "n_layers": 2, **STACK}, byte_tokenizer(), TEMPLATE, seed=seed)


def write_translator(out: Path) -> Path:
    tokenizer = byte_tokenizer()
    sizes = {"source_vocab": tokenizer.vocab_size, "target_vocab": tokenizer.vocab_size}
    table = {"kind": "transformer", "n_encoder_layers": 1, "n_decoder_layers": 1, **STACK, **sizes}
    return write_model(out, table, [tokenizer] * 2)


def write_bert(out: Path) -> Path:
    return write_model(out, {"kind": "bert", "n_layers": 1, **STACK}, word_tokenizer())


def write_classifier(out: Path) -> Path:
    base = {"kind": "bert", "n_layers": 1, **STACK}
    return write_model(out, {"kind": "classifier", "base": base, "n_classes": 3}, word_tokenizer(), classes=CLASSES)


def write_image_classifier(out: Path) -> Path:
    image = ImageConfig(size=13, channels=3, mean=(0.4,) * 3, std=(0.3,) * 3)
    return write_model(
        out, {"kind": "resnet", "size": 13, "n_classes": 3, **RESNET}, None, classes=CLASSES, image=image
    )


def write_recogniser(out: Path) -> Path:
    sound = SoundConfig(rate=2000, n_mels=11, window=0.032, hop=0.016)
    table = {"kind": "speech-rnn", "n_layers": 1, "d_model": 26, "channels": 11}
    return write_model(out, table, word_tokenizer(), sound=sound, seed=1)
