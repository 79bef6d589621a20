"""A text's way through a model, step by step, on the model's own numbers.

    token → id → embedding → + position → Q, K, V → Q K' → ÷ √d → softmax → × V → sum → heads joined → W_out
          → + residual, norm → feed-forward → + residual → next layers → logits → word

The walk of an image begins with its patches, that of a recording with its frames (walk_inputs.py).
One layer and one head are shown in full. Each step is computed from the step before by its equation, in plain torch.
`gap` is its largest difference from the activation that the model records (None where the model records none).
A head that is switched off keeps its pattern, and its z is replaced by 0.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.errors import ConfigError, suggest
from clearformer.layers.attention import MultiHeadAttention, repeat_heads
from clearformer.layers.blocks import Block, NoResidual, PostNorm, Stack
from clearformer.layers.feedforward import ACTIVATIONS, FeedForward, GatedFeedForward
from clearformer.layers.linear import is_plain_linear
from clearformer.layers.norms import layer_norm, rms_norm
from clearformer.layers.positions import Rotation, rotate
from clearformer.layers.token_norm import TokenBatchNorm
from clearformer.lens.outputs import by_row, check_length, row_names, speller
from clearformer.lens.patches import check as check_index
from clearformer.lens.points import CORE, points
from clearformer.lens.reading import Reading
from clearformer.lens.session import Lens
from clearformer.lens.walk_inputs import cut_image, hear_frames


@torch.no_grad()
def walk(reading: Reading, layer: str | None = None, head: int = 0) -> dict[str, Any]:
    """Return the steps through a block, by default the first, and one of its heads.

    A step has a name, an equation, the names of its rows and columns, its values and its gap.
    """
    spell = speller(reading)
    check_length(reading)
    stacks = {path: module for path, module in reading.model.named_modules() if isinstance(module, Stack)}
    blocks = [f"{path}.blocks.{i}" for path, stack in stacks.items() for i in range(len(stack.blocks))]
    if not blocks:
        raise ConfigError(f"{reading.name} has no attention blocks", "choose a Transformer")
    chosen = blocks[0] if layer is None else layer.removesuffix(".attn")
    if chosen not in blocks:
        raise ConfigError(f"{reading.name} has no block `{layer}`", suggest(chosen, blocks))
    path, _, index = chosen.rpartition(".blocks.")
    with Lens(reading.model, keep=kept_names(reading.model, chosen, list(stacks))) as look:
        logits = by_row(reading.compute(reading.batch))
    check_index([head], reading.model.get_submodule(f"{chosen}.attn").n_heads, "head", chosen)  # type: ignore[arg-type]
    trip = Walk(reading, look, head)
    x = trip.embed(path, stacks[path])
    x = trip.reach(f"{chosen}.resid_pre", x, int(index))
    x = trip.block(chosen, x)
    trip.leave(path, stacks[path], x, int(index))
    last = list(stacks)[-1]
    if path != last:
        hidden = look[f"{last}.out"][0]
        trip.add("decoder", "the translation so far, given the memory", hidden, reading.target, None)
    trip.predict(logits, look[f"{last}.out"], spell)
    return {
        "title": f"{reading.name}: a walk through {chosen}, head {head}",
        "layer": chosen,
        "head": head,
        "steps": trip.steps,
    }


def kept_names(model: nn.Module, block: str, stacks: list[str]) -> list[str]:
    """Return the names of all activations that a walk through a block is compared with."""
    wanted = [f"{block}.*", "*.norm.out", "*embedding.out", "*.resid_pre", "*.resid_post", "patches.*", "subsample.*"]
    wanted += [f"{stack}.out" for stack in stacks]
    return [name for name in points(model) if any(fnmatchcase(name, pattern) for pattern in wanted)]


class Walk:
    """Collects steps. Activations are matrices of one text: (T, D), or (T, S) inside attention."""

    def __init__(self, reading: Reading, look: Lens, head: int) -> None:
        self.reading, self.look, self.head = reading, look, head
        self.steps: list[dict[str, Any]] = []
        self.rows: list[str] = []

    def add(
        self,
        name: str,
        equation: str,
        value: Tensor,
        rows: Sequence[str] | None = None,
        recorded: Tensor | None = None,
        columns: Sequence[str] | None = None,
    ) -> Tensor:
        """Add a step, and return its value. −∞, the score of a masked key, becomes None in the values."""
        cells = [[None if cell == float("-inf") else cell for cell in row] for row in value.tolist()]
        self.steps.append(
            {
                "name": name,
                "equation": equation,
                "rows": list(self.rows if rows is None else rows),
                "columns": list(columns or [str(i) for i in range(value.size(1))]),
                "values": cells,
                "gap": None if recorded is None else float((value - recorded).abs().max()),
            }
        )
        return value

    def recorded(self, name: str) -> Tensor:
        """Return what the model recorded. A tied embedding occurs twice: for the source, then for the target."""
        value: Any = self.look[name]
        if isinstance(value, list):
            value = value[0 if self.rows == self.reading.source else -1]
        return value[0]

    def embed(self, path: str, stack: Stack) -> Tensor:
        model, batch = self.reading.model, vars(self.reading.batch)
        is_source = path == "encoder" and self.reading.source is not None
        self.rows = (self.reading.source or []) if is_source else self.reading.target
        ids = batch.get("source" if is_source else "target" if "target" in batch else "tokens")
        if ids is None:
            return self.place(path, stack, cut_image(self) if "pixels" in batch else hear_frames(self))
        base = path.rpartition(".")[0]
        prefix = f"{base}." if base else ""
        side = "embedding" if self.reading.source is None else "source_embedding" if is_source else "target_embedding"
        table: Any = model.get_submodule(f"{prefix}{side}")
        named = next(name for name, module in model.named_modules() if module is table)  # a tied one has one name
        self.add("id", "token → its number in the vocabulary", ids[0][:, None], columns=["id"])
        equation = "x = E[id]" if table.scale == 1 else f"x = E[id] · √D, D = {table.embedding_dim}"
        x = self.add("embedding", equation, table.weight[ids[0]] * table.scale, recorded=self.recorded(f"{named}.out"))
        segments = getattr(model.get_submodule(base) if base else model, "segments", None)
        if segments is not None:
            which = batch.get("segments")
            numbers = torch.zeros_like(ids) if which is None or segments.num_embeddings == 1 else which
            x = self.add("segment", "x + S[segment]", x + segments.weight[numbers[0]])
        return self.place(path, stack, x)

    def place(self, path: str, stack: Stack, x: Tensor) -> Tensor:
        """Go from embeddings to the input of the first block: add the positions, if the stack has any to add."""
        added = stack.positions.add(torch.zeros_like(x)[None], torch.arange(len(x), device=x.device))[0]
        first = self.recorded(f"{path}.blocks.0.resid_pre")
        if added.any():
            self.add("position", "P: a vector for each position", added)
            x = self.add("embedding + position", "x + P", x + added, recorded=None if stack.first_norm else first)
        if stack.first_norm is not None:
            x = self.norm(stack.first_norm, x, first)
        return x

    def reach(self, name: str, x: Tensor, index: int) -> Tensor:
        """Go to the input of a block. The blocks before it compute in the same way."""
        return x if index == 0 else self.add("layers before", f"after {index} of the blocks", self.recorded(name))

    def block(self, path: str, x: Tensor) -> Tensor:
        block: Any = self.reading.model.get_submodule(path)
        assert isinstance(block, Block)
        x = self.sublayer(path, "attn", "resid_mid", x)
        if block.has_cross:
            x = self.sublayer(path, "cross", "resid_cross", x)
        return self.sublayer(path, "mlp", "resid_post", x)

    def sublayer(self, path: str, name: str, after: str, x: Tensor) -> Tensor:
        """Walk through attention or a feed-forward network, with its residual connection and norm."""
        block: Any = self.reading.model.get_submodule(path)
        residual = getattr(block, f"add_{name}")
        is_post, end = isinstance(residual, PostNorm), self.recorded(f"{path}.{after}")
        inside = x if is_post else self.norm(residual.norm, x, self.recorded(f"{path}.add_{name}.norm.out"))
        if name == "mlp":
            written = self.feed_forward(f"{path}.mlp", block.mlp, inside, self.recorded(f"{path}.mlp_out"))
        else:
            written = self.attention(f"{path}.{name}", getattr(block, name), inside)
            written = self.add("W_out", "joined W_out + b", written, recorded=self.recorded(f"{path}.{name}_out"))
        if isinstance(residual, NoResidual):
            return written
        x = self.add("+ residual", "x + what the sublayer writes", x + written, recorded=None if is_post else end)
        return self.norm(residual.norm, x, end) if is_post else x

    def norm(self, norm: nn.Module, x: Tensor, recorded: Tensor | None) -> Tensor:
        if isinstance(norm, nn.Identity):
            return x
        if isinstance(norm, TokenBatchNorm):
            equation = "(x − μ) / √(σ² + ε) · γ + β, with the running μ and σ² of each feature"
            return self.add("norm", equation, x * norm.line()[0] + norm.line()[1], recorded=recorded)
        gain: Any = norm.weight
        eps: Any = norm.eps
        if isinstance(norm, nn.LayerNorm):
            value = layer_norm(x, gain, norm.bias, eps)
            return self.add("norm", "(x − μ) / √(σ² + ε) · γ + β", value, recorded=recorded)
        return self.add("norm", "x / √(mean x² + ε) · γ", rms_norm(x, gain, eps), recorded=recorded)

    def attention(self, path: str, layer: MultiHeadAttention, x: Tensor) -> Tensor:
        """Return joined W_out; every matrix of the chosen head is a step."""
        is_cross = path.endswith(".cross")
        stack: Any = self.reading.model.get_submodule(path.rpartition(".blocks.")[0])
        saved = {leaf: self.recorded(f"{path}.{leaf}") for leaf in CORE}
        where = torch.arange(len(x), device=x.device)
        rotation, bias = (
            (None, None) if is_cross else (stack.positions.rotation(where), stack.positions.bias(where, where))
        )
        q, k, v = self.project(layer, x, self.look["encoder.out"][0] if is_cross else x, rotation, saved)
        n_prefix, h, group = k.size(1) - len(self.keys(path)), self.head, self.head * layer.n_kv_heads // layer.n_heads
        names = [*(f"prefix {i}" for i in range(n_prefix)), *self.keys(path)]
        memory, turned = "memory" if is_cross else "x", "" if rotation is None else ", turned by its position"
        self.add("Q", f"x Wq + b{turned}", q[h], recorded=saved["q"][h])
        self.add("K", f"{memory} Wk + b{turned}", k[group], names, saved["k"][group])
        self.add("V", f"{memory} Wv + b", v[group], names, saved["v"][group])
        bias = None if bias is None else F.pad(bias, (n_prefix, 0))
        future = None if is_cross or not stack_is_causal(saved["pattern"], n_prefix) else n_prefix + 1
        scores = self.score(
            layer, q[h] @ k[group].T, None if bias is None else bias[h], future, names, saved["scores"][h]
        )
        pattern = self.add("pattern", "softmax of each row", scores.softmax(-1), None, saved["pattern"][h], names)
        parts = pattern[-1][:, None] * v[group]
        self.add(f"× V, for {self.rows[-1]}", "each value times its weight in the last row", parts, names)
        off = saved["z"].eq(0).all((1, 2))  # heads that are switched off
        written = None if off[h] else saved["z"][h]
        z = self.add("z", "pattern V: the sum of the weighted values", pattern @ v[group], None, written)
        if off[h]:
            self.add("z, off", "0: the head is switched off", torch.zeros_like(z), None, saved["z"][h])
        every = q @ repeat_heads(k[None], layer.n_heads)[0].mT * layer.scale  # the other heads, in the same way
        every = every if bias is None else every + bias
        every = every.masked_fill(scores == -torch.inf, -torch.inf).softmax(-1)
        joined = every @ repeat_heads(v[None], layer.n_heads)[0]  # (H, T, N)
        joined[h] = z
        joined[off] = 0
        joined, before = (value.transpose(0, 1).flatten(1) for value in (joined, saved["z"]))
        return product(layer.out, self.add("heads joined", "z of all heads, side by side", joined, recorded=before))

    def keys(self, path: str) -> list[str]:
        return (self.reading.source or []) if path.endswith(".cross") else self.rows

    def project(
        self, layer: MultiHeadAttention, x: Tensor, memory: Tensor, rotation: Rotation | None, saved: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (H, T, K), keys (G, S, K) and values (G, S, N); a learned prefix comes first."""
        n_q, n_k, _ = layer.rows
        q = heads(product(layer.qkv, x)[:, :n_q], layer.n_heads)
        k = heads(product(layer.qkv, memory)[:, n_q : n_q + n_k], layer.n_kv_heads)
        v = heads(product(layer.qkv, memory)[:, n_q + n_k :], layer.n_kv_heads)
        if rotation is not None:
            q, k = rotate(q[None], rotation)[0], rotate(k[None], rotation)[0]
        n_prefix = saved["k"].size(1) - k.size(1)
        return q, torch.cat([saved["k"][:, :n_prefix], k], dim=1), torch.cat([saved["v"][:, :n_prefix], v], dim=1)

    def score(
        self,
        layer: MultiHeadAttention,
        scores: Tensor,
        bias: Tensor | None,
        future: int | None,
        names: list[str],
        recorded: Tensor,
    ) -> Tensor:
        """Return scaled, biased and masked scores (T, S). `future` is the first diagonal of later tokens, if masked."""
        self.add("scores", "Q K'", scores, columns=names)
        is_root = abs(layer.scale * layer.d_head**0.5 - 1) < 1e-9
        scale = f"÷ √d, d = {layer.d_head}" if is_root else f"· {layer.scale:g}"
        is_last = bias is None
        scores = scores * layer.scale
        self.add("scaled scores", f"scores {scale}", scores, None, recorded if is_last else None, names)
        if bias is not None:
            scores = self.add("+ bias", "scores + b(t − s), by distance", scores + bias, None, recorded, names)
        if future is not None:
            later = torch.ones_like(scores, dtype=torch.bool).triu(future)
            scores = scores.masked_fill(later, -torch.inf)
            self.add("masked scores", "−∞ for later tokens", scores, columns=names)
        return scores

    def feed_forward(self, path: str, network: Any, x: Tensor, recorded: Tensor) -> Tensor:
        if isinstance(network, GatedFeedForward):
            gate, value = product(network.up, x).chunk(2, dim=-1)
            hidden, equation = network.activation(gate) * value, "act(Wg x) ⊙ W1 x"
        else:
            assert isinstance(network, FeedForward)
            hidden, equation = ACTIVATIONS[network.kind](product(network.up, x)), f"{network.kind}(x W1 + b1)"
        self.add("feed-forward, hidden", equation, hidden, recorded=self.recorded(f"{path}.hidden"))
        return self.add("feed-forward", "hidden W2 + b2", product(network.down, hidden), recorded=recorded)

    def leave(self, path: str, stack: Stack, x: Tensor, index: int) -> None:
        """Go from a block to the end of its stack."""
        n = len(stack.blocks)
        if index < n - 1:
            x = self.add("next layers", "after the last block", self.recorded(f"{path}.blocks.{n - 1}.resid_post"))
        if stack.norm is not None:
            self.norm(stack.norm, x, self.recorded(f"{path}.out"))

    def predict(self, logits: Tensor, hidden: Tensor, spell: Any) -> None:
        """Show the logits (R, V) of the words that the model predicts, computed from its last hidden states."""
        model: Any = self.reading.model
        names = row_names(self.reading, len(logits))
        rows = self.reading.target if len(names) == len(self.reading.target) else names
        best = logits.argmax(-1)
        shown = list(dict.fromkeys(best.tolist()))
        if len(logits) == 1:
            shown = list(range(logits.size(1)))[:32]
        words = spell(shown)
        unembedding = getattr(model, "unembedding", None)
        if unembedding is not None and hidden.size(1) == len(logits):
            h = hidden[0] * (model.config.d_model**-0.5 if getattr(model.config, "scale_head", False) else 1)
            value = product(unembedding, h)
            self.add("logits", "hidden W', for the predicted words", value[:, shown], rows, logits[:, shown], words)
        else:
            value = logits
            self.add("logits", "by the head of the model", value[:, shown], rows, columns=words)
        chances = value.softmax(-1)
        self.add("probabilities", "softmax over the vocabulary", chances[:, shown], rows, columns=words)
        picked = value.argmax(-1)
        arrows = [f"{row} → {word}" for row, word in zip(rows, spell(picked.tolist()), strict=True)]
        self.add("word", "the most probable", chances.gather(1, picked[:, None]), arrows, columns=["probability"])


def product(layer: nn.Module, x: Tensor) -> Tensor:
    """Compute x W' + b by the equation; a layer with an adapter computes it itself."""
    if not is_plain_linear(layer) and not hasattr(layer, "tiles"):
        return layer(x)
    weight: Any = layer.weight
    bias: Any = layer.bias
    return x @ weight.T if bias is None else x @ weight.T + bias


def stack_is_causal(pattern: Tensor, n_prefix: int) -> bool:
    """Whether no head attends to a later token, in patterns (H, T, S)."""
    return pattern.size(1) > 1 and bool(pattern.triu(n_prefix + 1).eq(0).all())


def heads(x: Tensor, n: int) -> Tensor:
    return x.unflatten(-1, (n, -1)).transpose(0, 1)  # (T, n·K) -> (n, T, K)
