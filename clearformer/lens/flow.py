"""Attention rollout and attention flow through the layers of a text model (Abnar & Zuidema 2020).

    Ã_l     = ½ I + ½ mean over heads of A_l          the residual connection and the attention of layer l;
                                                      without residual connections, Ã_l is the mean alone
    rollout = Ã_L … Ã_2 Ã_1                           contributions multiplied along each path, summed over paths
    flow_ij = the maximum flow from position i of layer L to the input j, where the edge from position t of layer l to
              position s of layer l − 1 has the capacity Ã_l[t, s]

A product of many small numbers is small: rollout favours short detours over none. A flow is limited only by the
narrowest edge of a path. The flows from one position to different inputs are separate problems; they do not sum to 1.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import ConfigError, DataError
from clearformer.layers.blocks import NoResidual
from clearformer.lens.points import points
from clearformer.lens.reading import Reading
from clearformer.lens.rollout import mixed, rollout
from clearformer.wording import count

MOST, MOST_OF_ONE = 24, 128  # tokens: of T², and of T, maximum-flow problems with L·T² edges
EPSILON = 1e-12  # a residual capacity below this is a rounding error


def rollout_of_text(reading: Reading) -> dict[str, Any]:
    """Return how much each input contributes to each position after the last layer, by rollout."""
    names, layers = self_attention(reading)
    return panel("Attention rollout", reading, names, names, rollout(layers, stays(reading))[0], len(layers))


def flow_of_text(reading: Reading, position: int | None = None) -> dict[str, Any]:
    """Return how much each input contributes to each position after the last layer, or to one of them, by flow."""
    names, layers = self_attention(reading)
    most = MOST if position is None else MOST_OF_ONE
    if len(names) > most:
        hint = f"give a shorter text{', or one of its positions: --position 0' if position is None else ''}"
        raise DataError(f"the text has {count(len(names), 'token')}; flow is computed for at most {most}", hint)
    if position is not None and not -len(names) <= position < len(names):
        raise DataError(
            f"the text has no position {position}", f"choose from 0 to {len(names) - 1}; {names[0]} is at 0"
        )
    chosen = list(range(len(names)))
    chosen = chosen if position is None else [chosen[position]]
    capacities = [mixed(layer, stays(reading))[0].tolist() for layer in layers]
    flows = torch.tensor([[max_flow(capacities, i, j) for j in range(len(names))] for i in chosen])
    return panel("Attention flow", reading, [names[i] for i in chosen], names, flows, len(layers))


def stays(reading: Reading) -> float:
    """Return the share of a position that its residual connection keeps in a layer: ½, or 0 without one."""
    return 0.0 if any(isinstance(module, NoResidual) for module in reading.model.modules()) else 0.5


def panel(
    view: str, reading: Reading, rows: list[str], columns: list[str], values: Tensor, n_layers: int
) -> dict[str, Any]:
    part = "encoder, " if reading.source is not None else ""
    grid = {"name": f"{part}{count(n_layers, 'layer')}", "rows": rows, "columns": columns, "values": values.tolist()}
    return {
        "title": f"{view} of {reading.name}",
        "panels": [{**grid, "down": "output position", "across": "input"}],
    }


def self_attention(reading: Reading) -> tuple[list[str], list[Tensor]]:
    """Return the names of the positions and the patterns (1, H, T, T) of the encoder, or of the only stack.

    Without the columns of a learned prefix, whose rows then sum to less than 1.
    """
    names = [name for name in points(reading.model) if name.endswith(".attn.pattern")]
    if reading.source is not None:
        names = [name for name in names if name.startswith("encoder.")]
    if not names:
        raise ConfigError(f"{reading.name} has no self-attention", "choose a Transformer")
    rows, _ = reading.axes_of(names[0])
    _, look = reading.look(keep=names)
    return rows, [look[name][..., -len(rows) :].double() for name in names]


def max_flow(capacities: list[list[list[float]]], source: int, sink: int) -> float:
    """Return the maximum flow from the position `source` after the last layer to the input `sink`.

    By Dinic's algorithm (1970): phases of shortest paths in the residual network, each blocked before the next.
    """
    T, L = len(capacities[0]), len(capacities)
    residual: list[dict[int, float]] = [{} for _ in range((L + 1) * T)]  # of each node, by its neighbour
    for layer, matrix in enumerate(capacities, 1):
        for t, row in enumerate(matrix):
            for s, capacity in enumerate(row):
                if capacity > 0:
                    residual[layer * T + t][(layer - 1) * T + s] = capacity
                    residual[(layer - 1) * T + s].setdefault(layer * T + t, 0.0)
    start, total = L * T + source, 0.0
    while (distance := distances(residual, start))[sink] >= 0:
        rest = [list(edges) for edges in residual]  # neighbours that may still lead to the sink in this phase
        while pushed := push_once(residual, distance, rest, start, sink):
            total += pushed
    return total


def distances(residual: list[dict[int, float]], start: int) -> list[int]:
    """Return the number of edges with residual capacity from `start` to each node, −1 for nodes out of reach."""
    distance = [-1] * len(residual)
    distance[start], frontier = 0, [start]
    while frontier:
        reached = []
        for node in frontier:
            for other, capacity in residual[node].items():
                if capacity > EPSILON and distance[other] < 0:
                    distance[other] = distance[node] + 1
                    reached.append(other)
        frontier = reached
    return distance


def push_once(
    residual: list[dict[int, float]], distance: list[int], rest: list[list[int]], start: int, sink: int
) -> float:
    """Send as much as possible along one shortest path; returns 0 if all shortest paths are blocked."""
    path = [start]
    while path and path[-1] != sink:
        node, neighbours = path[-1], rest[path[-1]]
        while neighbours:
            other = neighbours[-1]
            if residual[node][other] > EPSILON and distance[other] == distance[node] + 1:
                path.append(other)
                break
            neighbours.pop()
        else:
            path.pop()
            if path:
                rest[path[-1]].pop()  # a dead end
    if not path:
        return 0.0
    edges = list(pairwise(path))
    amount = min(residual[a][b] for a, b in edges)
    for a, b in edges:
        residual[a][b] -= amount
        residual[b][a] += amount
    return amount
