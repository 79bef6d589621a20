"""A folder with a model for ONNX runtimes: model.onnx, the tokenizer, and model.json, which describes both.

texts -> classes       tokens, mask (and segments)       ->  logits
images -> classes      pixels, normalised                ->  logits
images -> images       pixels, normalised                ->  code, reconstruction
recordings -> text     samples (16 bits), lengths        ->  logits of tokens and the blank, n_frames
translator             source, mask, max_new             ->  tokens and their logprobs, by greedy search
language model         prompt, max_new                   ->  tokens and their logprobs, by greedy search
"""

from math import prod
from pathlib import Path
from typing import Any

from clearformer.checkpoint import atomically, write_json
from clearformer.data.batch import EncoderBatch, ImageBatch, SoundBatch
from clearformer.errors import CheckpointError
from clearformer.interop.onnx import networks, recurrent, search
from clearformer.interop.onnx.recurrent import scan_all
from clearformer.models.gpt import GPT
from clearformer.models.rnn import RNN
from clearformer.models.seq2seq import Seq2Seq
from clearformer.models.transformer import Transformer

MAX_BYTES = 1_900_000_000  # an ONNX file is one protocol buffer, of at most 2 GiB


def export_onnx(opened: Any, out: Path) -> str:
    """Write the folder of a Pretrained, and return the kind of the model."""
    network = opened.network.float().eval()
    n_bytes = sum(parameter.nbytes for parameter in network.parameters())
    if n_bytes > MAX_BYTES:
        raise CheckpointError(
            f"{opened.name} has {n_bytes / 1e9:.1f} GB of weights, but an ONNX file holds less than 2 GB",
            "export it for Hugging Face instead",
        )
    proto, facts = convert(opened, network)
    out.mkdir(parents=True, exist_ok=True)
    with atomically(out / "model.onnx") as path:
        path.write_bytes(proto.SerializeToString())
    names = (
        ["tokenizer.json"] if len({t.fingerprint() for t in opened.tokenizers}) < 2 else ["source.json", "target.json"]
    )
    for name, tokenizer in zip(names, opened.tokenizers):
        tokenizer.save(out / name)
    write_json(out / "model.json", {"kind": opened.config.kind, "tokenizers": names[: len(opened.tokenizers)], **facts})
    return str(opened.config.kind)


def convert(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    """Return the graph, and what a program has to know to use it."""
    scan_all(network)
    batch_class = getattr(network, "batch_class", None)
    if isinstance(network, Transformer | Seq2Seq):
        return translator(opened, network)
    if isinstance(network, GPT | RNN):
        return generator(opened, network)
    if batch_class is EncoderBatch:
        return text_model(opened, network)
    if batch_class is SoundBatch:
        return recogniser(opened, network)
    if batch_class is ImageBatch and (opened.classes is not None or opened.config.kind == "autoencoder"):
        return image_model(opened, network)
    raise CheckpointError(
        f"{opened.name} cannot be exported to ONNX: its architecture, {opened.config.kind}, neither classifies nor "
        "generates text",
        "export a translator, a language model, a speech recogniser, or a classifier of texts or images",
    )


def translator(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    source, target = opened.source_tokenizer, opened.target_tokenizer
    first = int(getattr(target, f"{network.begins_with}_id"))
    if isinstance(network, Seq2Seq):
        graphs = recurrent.translator_graphs(network)
    else:
        graphs = networks.encoder_graph(network), networks.decoder_graph(network)
    special = {"pad": source.pad_id, "source_eos": source.eos_id, "eos": target.eos_id}
    facts = {"inputs": ["source", "mask", "max_new"], "outputs": ["tokens", "logprobs"], **special}
    return search.translator(*graphs, first, target.eos_id), facts


def generator(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    tokenizer = opened.tokenizer
    if isinstance(network, RNN):
        start, step = recurrent.generator_graphs(network)
        proto = search.generator(step, tokenizer.eos_id, start)
    elif network.config.prompt == "full":
        raise CheckpointError(
            f"{opened.name} reads a prompt in both directions, but the search in an ONNX file reads from left to right",
            "export a model with model.prompt = causal",
        )
    else:
        proto = search.generator(networks.next_token_graph(network), tokenizer.eos_id)
    ids: dict[str, Any] = {"eos": tokenizer.eos_id, "bos": tokenizer.bos_id, "opening": list(tokenizer.opening)}
    return proto, {"inputs": ["prompt", "max_new"], "outputs": ["tokens", "logprobs"], **ids}


def text_model(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    """Convert a classifier, a tagger, a masked language model or a sentence scorer.

    A BERT without a word head gives the logits of its next-sentence head; without any head, its hidden states.
    """
    config = getattr(opened.config, "base", opened.config)
    has_segments = getattr(config, "n_segments", 0) > 1
    is_headless = opened.config.kind != "classifier" and not getattr(config, "word_head", True)
    is_of_sentences = is_headless and getattr(config, "next_sentence_head", False)
    output = "hidden" if is_headless and not is_of_sentences else "logits"
    inputs = ["tokens", "mask", *(["segments"] if has_segments else [])]
    facts = {"inputs": inputs, "outputs": [output], "pad": opened.tokenizer.pad_id, **classes_of(opened)}
    if opened.recipe.objective.kind == "sentence-score":
        facts |= {"classes": ["original", "changed"], "temperature": 1.0}
    return networks.text_graph(network, has_segments, output, is_of_sentences), facts


def image_model(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    image, size, channels = opened.recipe.image, opened.config.size, opened.config.channels
    is_autoencoder = opened.config.kind == "autoencoder"
    outputs = ["code", "reconstruction"] if is_autoencoder else ["logits"]
    facts = {"inputs": ["pixels"], "outputs": outputs, "size": size, "channels": channels}
    facts |= {} if image is None else {"image": image.model_dump(mode="json")}
    facts |= {} if is_autoencoder else classes_of(opened)
    return networks.image_graph(network, size, channels, outputs), facts


def recogniser(opened: Any, network: Any) -> tuple[Any, dict[str, Any]]:
    """Convert a speech recogniser, with its log-mel frames. CTC's blank is the last class."""
    sound = opened.recipe.sound
    facts = {"inputs": ["samples", "lengths"], "outputs": ["logits", "n_frames"], "blank": opened.config.vocab}
    seconds = sound.hop * prod(opened.config.strides)
    return networks.recording_graph(network, sound), {**facts, "rate": sound.rate, "seconds_per_frame": seconds}


def classes_of(opened: Any) -> dict[str, Any]:
    if opened.classes is None:
        return {}
    return {"classes": opened.classes, "temperature": opened.temperature}
