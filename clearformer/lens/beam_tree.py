"""The tree of beam search: the hypotheses that it keeps, finishes and drops at each step, with their scores.

    score(y) = log p(y | x) / penalty(|y|)        each step has the 2W best extensions of the W live hypotheses

Of the extensions, the W best without EOS stay live ("kept"), those with EOS that enter the pool are "finished", and
the others are "dropped". Hypotheses that are still live when the search ends are "unfinished".
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.errors import ConfigError
from clearformer.generation.beam import Live, Pool, beam_search, penalty
from clearformer.generation.decode import NEVER, until
from clearformer.handles.handle import Handle
from clearformer.handles.translator import Translator


@torch.inference_mode()
def beam_tree(handle: Handle, text: str, beam: int | None = None) -> dict[str, Any]:
    """Search the translation of a text by `handle.decode`, and return all extensions by step, best first.

    Each extension has an `id`, the id of its `parent` (None in the first step), its `token`, `logprob`, `score` and
    `fate`. `best` is the path of ids to the translation.
    """
    if not isinstance(handle, Translator):
        raise ConfigError(f"{handle.name} is {handle.kind}; the tree of beam search needs a translator", "omit --model")
    decode = handle.decode.changed(temperature=0.0, **({} if beam is None else {"beam": beam}))
    sources = handle.encode_sources([text])
    if not sources[0]:
        raise ConfigError("the text is empty", "give a text with at least one word")
    source, _, first, limits = handle.begin(sources, decode)
    source, first, limits = (tensor.to(handle.device) for tensor in (source, first, limits))  # one text: no mask
    eos = handle.target_tokenizer.eos_id
    tree = Tree(decode, handle.target_tokenizer.pieces, eos)
    state = handle.model.start(source, None)
    [results] = beam_search(handle.model, state, first, eos, limits, decode, tree.grow)
    tree.close()
    texts = handle.target_tokenizer.decode([hypothesis.tokens for hypothesis in results])
    return {
        "title": f"Beam search of {handle.name}",
        "text": text,
        "beam": decode.beam,
        "steps": tree.steps,
        "results": [
            {"text": written, "score": hypothesis.score, "logprob": hypothesis.logprob}
            for written, hypothesis in zip(texts, results)
        ],
        "best": tree.path(results[0].tokens),
    }


class Tree:
    """Collects the extensions of each step of beam search. A hypothesis is identified by its tokens without BOS."""

    def __init__(self, decode: Any, spell: Any, eos: int) -> None:
        self.decode, self.spell, self.eos = decode, spell, eos
        self.steps: list[list[dict[str, Any]]] = []
        self.ids: dict[tuple[int, ...], int] = {}

    def grow(self, candidates: Live, ended: Tensor, live: Live, pool: Pool) -> None:
        """Add a step: the candidates (1, 2W), which of them have ended, and the live and finished ones after it."""
        kept = {tuple(row[1:]) for row, p in zip(live.tokens[0].tolist(), live.logprob[0].tolist()) if p > NEVER}
        finished = {tuple(until(row[1:], self.eos)) for row in pool.tokens[0].tolist()}
        rows = zip(candidates.tokens[0].tolist(), candidates.logprob[0].tolist(), ended[0].tolist())
        step: list[dict[str, Any]] = []
        for rank, (tokens, logprob, is_ended) in enumerate(rows):
            if logprob == NEVER:
                continue
            key = tuple(tokens[1:])
            is_finished = is_ended and rank < self.decode.beam and tuple(until(list(key), self.eos)) in finished
            self.ids[key] = len(self.ids)
            step.append(
                {
                    "id": self.ids[key],
                    "parent": self.ids.get(key[:-1]),
                    "token": self.spell([key[-1]])[0],
                    "logprob": logprob,
                    "score": logprob / penalty(len(key), self.decode),
                    "fate": "finished" if is_finished else "kept" if key in kept else "dropped",
                }
            )
        self.steps.append(step)

    def close(self) -> None:
        for node in self.steps[-1]:
            if node["fate"] == "kept":
                node["fate"] = "unfinished"

    def path(self, tokens: list[int]) -> list[int]:
        """Return the ids from the first token to the end of a hypothesis, which is EOS unless it was cut."""
        keys = [tuple(tokens[:n]) for n in range(1, len(tokens) + 1)]
        closed = (*tokens, self.eos)
        return [self.ids[key] for key in [*keys, *([closed] if closed in self.ids else [])]]
