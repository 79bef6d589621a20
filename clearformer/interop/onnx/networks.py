"""Networks as ONNX graphs with free numbers of rows and tokens.

texts         tokens, mask, segments   ->  logits (B, C) of a classifier, (B, T, C) of a tagger or a BERT;
                                           hidden states (B, T, D) of a BERT without heads
image         pixels                   ->  logits (B, C); of an autoencoder, code (B, D) and reconstruction
recording     samples, lengths         ->  logits (B, T', V + 1) of tokens and the blank, and their lengths (B,)
encoder       source, mask             ->  memory (B, S, D)
decoder       target, memory, mask     ->  logits of the next token (B, V)
GPT           tokens                   ->  logits of the next token (B, V)
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from clearformer.data.batch import EncoderBatch, ImageBatch, SoundBatch, TextBatch
from clearformer.data.sound import SoundConfig, SoundFrontend
from clearformer.interop.onnx.graphs import BATCH, LENGTH, SOURCE, graph


class OfTexts(nn.Module):
    def __init__(self, network: Any, is_of_sentences: bool) -> None:
        super().__init__()
        self.network, self.is_of_sentences = network, is_of_sentences

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        batch, network = EncoderBatch(tokens, mask, segments, n_tokens=0), self.network
        output: Tensor = (
            network.next_sentence(network.pooled(network.hidden(batch))) if self.is_of_sentences else network(batch)
        )
        return output


class OfImages(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.network(ImageBatch(pixels, n_tokens=0))
        return logits


class CodeOfImages(OfImages):
    """An autoencoder: the code of each image, and the image that the decoder makes of it."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        code = self.network.hidden(ImageBatch(pixels, n_tokens=0))  # type: ignore[operator]
        return code, self.network.head(code)  # type: ignore[operator]


class Encoder(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, mask: Tensor) -> Tensor:
        memory: Tensor = self.network.encode(source, mask)
        return memory


class Decoder(Encoder):
    def forward(self, target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        logits: Tensor = self.network.head(self.network.decode(target, memory, mask)[:, -1])
        return logits


class NextToken(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.network.hidden(TextBatch(tokens, tokens, n_tokens=0))
        logits: Tensor = self.network.head(hidden[:, -1])
        return logits


class OfRecordings(nn.Module):
    """From 16-bit samples to logits: the frames are computed inside the graph."""

    def __init__(self, network: Any, sound: SoundConfig) -> None:
        super().__init__()
        self.network, self.frontend = network, SoundFrontend(sound)

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        batch = self.frontend(SoundBatch(samples, lengths, n_tokens=0))
        return self.network(batch), self.network.shortened(batch.lengths)


def text_graph(network: nn.Module, has_segments: bool, output: str, is_of_sentences: bool) -> Any:
    tokens = torch.ones(2, 7, dtype=torch.long)
    inputs = {"tokens": tokens, "mask": tokens == 1, **({"segments": tokens * 0} if has_segments else {})}
    return graph(OfTexts(network, is_of_sentences), inputs, [{0: BATCH, 1: LENGTH}] * len(inputs), [output])


def recording_graph(network: nn.Module, sound: SoundConfig) -> Any:
    n = 7 * sound.window_samples
    inputs = {"samples": torch.ones(2, n, dtype=torch.int16), "lengths": torch.tensor([n, n - 3])}
    shapes = [{0: BATCH, 1: Dim("n_samples", min=sound.window_samples)}, {0: BATCH}]
    return graph(OfRecordings(network, sound), inputs, shapes, ["logits", "n_frames"])


def image_graph(network: nn.Module, size: int, channels: int, outputs: list[str]) -> Any:
    module = (OfImages if len(outputs) == 1 else CodeOfImages)(network)
    return graph(module, {"pixels": torch.zeros(2, channels, size, size)}, [{0: BATCH}], outputs)


def encoder_graph(network: nn.Module) -> Any:
    source = torch.ones(2, 7, dtype=torch.long)
    shapes = [{0: BATCH, 1: SOURCE}] * 2
    return graph(Encoder(network), {"source": source, "mask": source == 1}, shapes, ["memory"])


def decoder_graph(network: nn.Module) -> Any:
    source = torch.ones(2, 7, dtype=torch.long)
    with torch.no_grad():
        memory = Encoder(network)(source, source == 1)
    inputs = {"target": source[:, :3], "memory": memory, "mask": source == 1}
    shapes = [{0: BATCH, 1: LENGTH}, {0: BATCH, 1: SOURCE}, {0: BATCH, 1: SOURCE}]
    return graph(Decoder(network), inputs, shapes, ["logits"])


def next_token_graph(network: nn.Module) -> Any:
    return graph(
        NextToken(network), {"tokens": torch.ones(2, 7, dtype=torch.long)}, [{0: BATCH, 1: LENGTH}], ["logits"]
    )
