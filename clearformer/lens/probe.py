"""Linear probes: what a layer knows that a linear map can read out (Alain & Bengio 2017).

    x = mean over tokens of the activation,  p(class | x) = softmax(W x + b)
    W, b = argmin −(1/n) Σ log p(class_i | x_i) + |W|² / 2n           features scaled to variance 1

One probe for each layer, fitted to four fifths of the texts; its accuracy is on the held-out fifth. Compare it with the
fraction of the largest class, and with the accuracy of a control probe, fitted to and tested on shuffled labels
(Hewitt & Liang 2019). The model stays as it is.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.data.store import Ragged
from clearformer.data.text_sample import TextSample
from clearformer.errors import ConfigError, DataError
from clearformer.handles.batching import read_rows
from clearformer.handles.handle import Handle
from clearformer.handles.text_encoder import TextEmbedder, TextEncoder
from clearformer.handles.translator import Translator
from clearformer.lens.points import points
from clearformer.lens.session import Lens
from clearformer.models.classifier import pool_mean
from clearformer.models.classifier import read as read_base
from clearformer.wording import count

TEXTS = 2000  # more texts are sampled evenly
HELD_OUT = 5  # every fifth text of a class
SHUFFLES = 3  # controls; their mean is shown
STEPS = 100  # of L-BFGS


def probe(handle: Handle, sample: TextSample, seed: int = 0) -> dict[str, Any]:
    """Return the accuracy of a probe of each layer on held-out texts, with the majority class and a control."""
    sizes = Counter(sample.labels)
    classes = sorted(name for name, n in sizes.items() if n > 1 and name)
    if len(classes) < 2:
        raise DataError(
            f"a probe needs at least 2 classes with 2 texts each, not {len(classes)}", "give a file with labelled texts"
        )
    rows = [i for i, label in enumerate(sample.labels) if label in classes]
    labels = torch.tensor([classes.index(sample.labels[i]) for i in rows])
    features = activations(handle, [sample.texts[i] for i in rows])
    generator = torch.Generator().manual_seed(seed)
    is_test = held_out(labels, generator)
    orders = [torch.randperm(len(labels), generator=generator) for _ in range(SHUFFLES)]
    layers = []
    for name, x in features.items():
        control = [fit_and_test(x, labels[order], is_test, len(classes)) for order in orders]
        accuracy = fit_and_test(x, labels, is_test, len(classes))
        layers.append({"name": name, "accuracy": accuracy, "control": sum(control) / SHUFFLES})
    most_common = labels[~is_test].bincount().argmax()
    return {
        "title": f"What the layers of {handle.name} know about {count(len(classes), 'class', 'classes')}",
        "classes": classes,
        "n_train": int((~is_test).sum()),
        "n_test": int(is_test.sum()),
        "left_out": len(sample.labels) - len(rows),
        "majority": float((labels[is_test] == most_common).double().mean()),
        "layers": layers,
    }


def held_out(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Choose a fifth of each class, and at least one text, at random: (n,) bool."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for k in range(int(labels.max()) + 1):
        members = (labels == k).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        chosen[members[: max(1, len(members) // HELD_OUT)]] = True
    return chosen


def fit_and_test(x: Tensor, labels: Tensor, is_test: Tensor, n_classes: int) -> float:
    """Fit a probe to the texts that are not held out, and return its accuracy on the others."""
    mean, std = x[~is_test].mean(0), x[~is_test].std(0, correction=0).clamp(min=1e-8)
    x = (x - mean) / std
    W, b = fit_logistic(x[~is_test], labels[~is_test], n_classes)
    return float(((x[is_test] @ W.T + b).argmax(1) == labels[is_test]).double().mean())


def fit_logistic(x: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Fit W (C, D) and b (C,) to x (n, D) by L-BFGS from zero. The loss is convex, so that nothing is random."""
    W, b = x.new_zeros(n_classes, x.size(1), requires_grad=True), x.new_zeros(n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([W, b], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(x @ W.T + b, labels) + W.square().sum() / (2 * len(x))
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return W.detach(), b.detach()


def activations(handle: Handle, texts: Sequence[str]) -> dict[str, Tensor]:
    """Return the mean activation over the tokens of each text for each layer, (n, D) in float64, by layer."""
    if isinstance(handle, Translator):
        network, eos = handle.model, handle.source_tokenizer.eos_id
        ids, pad = [[*row, eos] for row in handle.encode_sources(texts)], handle.source_tokenizer.pad_id
        segments = [[0] * len(row) for row in ids]
    elif isinstance(handle, TextEmbedder | TextEncoder):
        encoder = handle if isinstance(handle, TextEncoder) else handle.encoder
        network, pad = encoder.model, encoder.tokenizer.pad_id
        ids, segments = encoder.tokenizer.encode_with_specials(list(texts), max_tokens=encoder.max_tokens)
    else:
        raise ConfigError(f"{handle.name} is {handle.kind}, which reads no texts", "choose a model of text")
    if not all(ids):
        raise DataError("a text is empty", "remove the empty texts from the file")
    layers, widths = layers_of(network), dict[str, int]()

    def compute(batch: EncoderBatch) -> Tensor:
        with Lens(network, keep=[name for names in layers.values() for name in names]) as look:
            output = run(network, batch)
        parts = {name: torch.cat([look[part] for part in names], dim=-1) for name, names in layers.items()}
        parts |= {} if output is None else {"output": output}
        widths.update({name: part.size(-1) for name, part in parts.items()})
        return torch.cat([pool_mean(part.double(), batch.mask) for part in parts.values()], dim=1)

    pooled = read_rows(compute, Ragged.of(ids), Ragged.of(segments), pad, handle.device)
    return dict(zip(widths, pooled.split(list(widths.values()), dim=1)))


def run(network: nn.Module, batch: EncoderBatch) -> Tensor | None:
    """Return the last hidden states (B, T, D): of the encoder of a translator, else of the network without its head.

    The last hidden states of a recurrent encoder are those of its last layer, so None is returned.
    """
    if not is_translator(network):
        return read_base(network, batch)
    encoded = network.encode(batch.tokens, batch.mask)  # type: ignore[operator]
    return encoded if isinstance(encoded, Tensor) else None


def is_translator(network: nn.Module) -> bool:
    return hasattr(network, "source_embedding")


def layers_of(network: nn.Module) -> dict[str, list[str]]:
    """Return the activations of each layer: the embeddings, then residual streams or states of both directions."""
    known = points(network)
    names = [name for name in known if name.startswith("encoder.") or not is_translator(network)]
    embeddings = ("embedding.out", "source_embedding.out", "target_embedding.out")  # the last, if both are tied
    layers = {"embedding": [next(name for name in embeddings if name in known)]}
    layers |= {name.removesuffix(".resid_post"): [name] for name in names if name.endswith(".resid_post")}
    for name in names:
        path, _, part = name.rpartition(".")
        if part == "h":
            layers.setdefault(path.removesuffix("_reverse"), []).append(name)
    return layers
