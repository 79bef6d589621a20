"""A folder with a model for ONNX runtimes: model.onnx, the tokenizer, and model.json, which describes both.

texts -> classes       tokens, mask (and segments)  ->  logits
images -> classes      pixels, normalised           ->  logits
translator             source, mask, max_new        ->  tokens, by greedy search
GPT                    prompt, max_new              ->  tokens, by greedy search
"""

from pathlib import Path
from typing import Any

from torch import nn

from clearformer.checkpoint import atomically, write_json
from clearformer.data.batch import EncoderBatch, ImageBatch
from clearformer.errors import CheckpointError
from clearformer.interop.onnx import networks, search
from clearformer.models.gpt import GPT
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
    batch_class = getattr(network, "batch_class", None)
    if any(isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in network.modules()):
        batch_class = None  # the exporter would fix the length of their loops
    if isinstance(network, Transformer):
        tok = opened.target_tokenizer
        first, eos = int(getattr(tok, f"{network.begins_with}_id")), tok.eos_id
        proto = search.translator(networks.encoder_graph(network), networks.decoder_graph(network), first, eos)
        source = opened.source_tokenizer
        special = {"pad": source.pad_id, "source_eos": source.eos_id, "eos": eos}
        return proto, {"inputs": ["source", "mask", "max_new"], "outputs": ["tokens"], **special}
    if isinstance(network, GPT) and network.config.prompt == "full":
        raise CheckpointError(
            f"{opened.name} reads a prompt in both directions, but the search in an ONNX file reads from left to right",
            "export a model with model.prompt = causal",
        )
    if isinstance(network, GPT):
        proto = search.generator(networks.next_token_graph(network), opened.tokenizer.eos_id)
        opening = list(opened.tokenizer.opening)
        ids: dict[str, Any] = {"eos": opened.tokenizer.eos_id, "bos": opened.tokenizer.bos_id, "opening": opening}
        return proto, {"inputs": ["prompt", "max_new"], "outputs": ["tokens"], **ids}
    if batch_class is EncoderBatch:
        has_segments = getattr(getattr(opened.config, "base", opened.config), "n_segments", 0) > 1
        inputs = ["tokens", "mask", *(["segments"] if has_segments else [])]
        facts = {"inputs": inputs, "outputs": ["logits"], "pad": opened.tokenizer.pad_id}
        return networks.text_graph(network, has_segments), facts | classes_of(opened)
    if batch_class is ImageBatch and opened.classes is not None:
        image = opened.recipe.image
        size, channels = opened.config.size, opened.config.channels
        facts = {"inputs": ["pixels"], "outputs": ["logits"], "size": size, "channels": channels}
        facts |= {} if image is None else {"image": image.model_dump(mode="json")}
        return networks.image_graph(network, size, channels), facts | classes_of(opened)
    raise CheckpointError(
        f"{opened.name} cannot be exported to ONNX: it is a recurrent network, or neither classifies nor writes text",
        "export a Transformer, a T5, a GPT, or a classifier of texts or images",
    )


def classes_of(opened: Any) -> dict[str, Any]:
    if opened.classes is None:
        return {}
    return {"classes": opened.classes, "temperature": opened.temperature}
