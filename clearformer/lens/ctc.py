"""The spikes of a speech model over a recording: which token it hears in which frame (Graves et al. 2006).

    p(π_t = k | x) = softmax(logits_t)_k          k a token or the blank, which means no new token in this frame
    transcript = collapse(argmax_k p)             repeats merged, then blanks removed: aa-ab- → aab

A trained model gives the blank in most frames, and a spike of one or two frames to each token.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.data.recordings import pad_sounds
from clearformer.errors import ConfigError
from clearformer.generation.best_path import best_path
from clearformer.handles.handle import Handle
from clearformer.handles.transcriber import Transcriber
from clearformer.lens.reading import Input, Reading

SHOWN = 0.05  # tokens that reach this probability in a frame are shown
MOST_TOKENS = 40  # shown tokens, the most probable ones
COLUMNS = 1000  # points of the waveform


def ctc(handle: Handle, reading: Reading, file: Input) -> dict[str, Any]:
    """Return probabilities by frame, with the blank, the best path, and the waveform and log-mel frames above."""
    if not isinstance(handle, Transcriber):
        raise ConfigError(f"{handle.name} is {handle.kind}, which has no CTC output", "choose a speech recogniser")
    samples = handle.open(file)
    batch = handle.frontend(pad_sounds([samples]).to(handle.device))
    logits, _ = reading.look()
    n = len(reading.target)
    probabilities = logits[0, :n].float().softmax(-1).cpu()  # (T, V + 1)
    assert reading.spell is not None
    shown, hop = shown_tokens(probabilities), handle.sound.hop
    [path] = best_path(logits, torch.tensor([n]))
    transcript = handle.spell(path)
    frame = hop * int(np.prod(handle.model.config.strides))
    return {
        "title": f"CTC of {handle.name}: {transcript.text or 'silence'}",
        "transcript": transcript.text,
        "words": [{"word": one.word, "start": one.start, "end": one.end} for one in transcript.words],
        "seconds_per_frame": frame,
        "tokens": reading.spell(shown),
        "probabilities": probabilities[:, shown].T.tolist(),  # (tokens, T)
        "blank": probabilities[:, -1].tolist(),
        "spikes": [
            {
                "token": reading.spell([one.token])[0],
                "start": one.start,
                "end": one.end,
                "probability": float(probabilities[one.start : one.end, one.token].max()),
            }
            for one in path
        ],
        "wave": envelope(samples),
        "seconds": len(samples) / handle.sound.rate,
        "mel": batch.sounds[0, : int(batch.lengths[0])].float().T.tolist(),  # (bands, frames)
        "mel_hop": hop,
    }


def shown_tokens(probabilities: Tensor) -> list[int]:
    """Return the tokens that are probable in some frame, without the blank, in the order of their spikes."""
    best, frames = probabilities[:, :-1].max(0)  # (V,)
    chosen = best.argsort(descending=True, stable=True)[:MOST_TOKENS]
    chosen = chosen[best[chosen] >= min(SHOWN, float(best.max()))]
    return chosen[frames[chosen].argsort(stable=True)].tolist()


def envelope(samples: np.ndarray) -> dict[str, list[float]]:
    """Return the lowest and highest sample in each of at most 1,000 stretches, from −1 to 1."""
    parts = np.array_split(samples.astype("float32") / 2**15, min(COLUMNS, len(samples)))
    return {"low": [float(part.min()) for part in parts], "high": [float(part.max()) for part in parts]}
