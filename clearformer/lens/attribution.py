"""How much each input token contributes to an output: gradient × input, and integrated gradients.

    gradient × input        g_i = x_i · ∂f(x)/∂x_i
    integrated gradients    a_i = (x_i − b) · ∫₀¹ ∂f(b + α (x − b))/∂x_i dα             Sundararajan et al. 2017

x_i is the embedding of token i, and f the logit of an output token or class. The baseline b is the mean embedding of
the vocabulary, a token without content; positions stay. Zero would not do: a norm removes the length of a vector, so
that f would jump just beside it. Completeness: Σ_i a_i = f(x) − f(b).

The integral is a sum over the midpoints of N steps, which are short where f changes: a trained model often decides
within a hundredth of the path. A step of length h errs by at most h V / 2, where V is the total variation of df/dα in
it. `gap` is the error of the sum, f(x) − f(b) − Σ_i a_i.
"""

from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import Tensors
from clearformer.errors import ConfigError
from clearformer.layers.embeddings import TokenEmbedding
from clearformer.lens.outputs import Output, by_row, check_length, choose_outputs, speller
from clearformer.lens.reading import Reading
from clearformer.lens.session import Lens

STEPS = 64
BUDGET = 8192  # tokens of one forward pass, each at several points of the path


def attribution(reading: Reading, position: int | None = None, steps: int = STEPS) -> dict[str, Any]:
    """Return both attributions, (outputs, inputs), with f(x), f(b) and the gap of each output.

    The outputs are the tokens of a text or translation, each class of a classifier, or the output at one `position`:
    of a tagger, the class of each word, or each class of the word at `position`. The inputs of a translator are the
    source, then the translation up to the output; those of a classifier of pairs are both texts.
    """
    speller(reading)
    check_length(reading)
    embeddings = {f"{path}.out": module for path, module in embeddings_of(reading.model).items()}
    if not embeddings:
        raise ConfigError(f"{reading.name} has no token embeddings", "choose a model that reads text")
    logits, _ = reading.look()
    outputs = choose_outputs(reading, by_row(logits), position)
    knots = divide_path(reading, embeddings, outputs, steps)
    alphas = torch.cat([torch.tensor([1.0, 0.0]), (knots[1:] + knots[:-1]) / 2])
    values, slopes, inputs = along_path(reading, embeddings, outputs, alphas)
    widths = knots.diff().to(values)
    gradients = [torch.einsum("rtd,td->rt", slope[0], x) for slope, x, _ in zip(slopes, *inputs)]
    integrated = [torch.einsum("n,nrtd,td->rt", widths, slope[2:], d) for slope, _, d in zip(slopes, *inputs)]
    total = torch.cat(integrated, dim=1)
    return {
        "title": f"Attribution of {reading.name}",
        "outputs": [output.name for output in outputs],
        "inputs": [*(reading.source or []), *reading.target],
        "gradient_input": torch.cat(gradients, dim=1).tolist(),
        "integrated": total.tolist(),
        "logits": values[0].tolist(),
        "baseline": values[1].tolist(),
        "gap": (values[0] - values[1] - total.sum(1)).tolist(),
        "steps": steps,
    }


def divide_path(reading: Reading, embeddings: dict[str, TokenEmbedding], outputs: list[Output], steps: int) -> Tensor:
    """Return the ends of `steps` intervals of [0, 1], (steps + 1,).

    Half of them follow α, half of them the change of f over all outputs, measured on a grid of as many points.
    """
    grid = torch.linspace(0, 1, steps + 1)
    values, _, _ = along_path(reading, embeddings, outputs, grid, is_graded=False)
    change = values.diff(dim=0).abs().double().cpu()  # (steps, R)
    change = (change / change.sum(0).clamp(min=1e-12)).mean(1)
    done = torch.cat([torch.zeros(1, dtype=torch.double), ((1 / steps + change) / (1 + change.sum())).cumsum(0)])
    wanted = torch.linspace(0, 1, steps + 1, dtype=torch.double)
    cell = torch.searchsorted(done, wanted, right=True).clamp(1, steps) - 1
    inside = (wanted - done[cell]) / (done[cell + 1] - done[cell])
    knots = (cell + inside) / steps
    knots[0], knots[-1] = 0.0, 1.0
    return knots


def embeddings_of(model: nn.Module) -> dict[str, TokenEmbedding]:
    return {path: module for path, module in model.named_modules() if isinstance(module, TokenEmbedding)}


def along_path(
    reading: Reading,
    embeddings: dict[str, TokenEmbedding],
    outputs: list[Output],
    alphas: Tensor,
    is_graded: bool = True,
) -> tuple[Tensor, list[Tensor], tuple[list[Tensor], list[Tensor]]]:
    """Return f (N, R) at points of the path from the baseline to x, and its gradients (N, R, T, D) by input.

    The last result has x and x − b of each input, (T, D). Several points share a forward pass, as rows of a batch.
    """
    alphas = alphas.to(next(reading.model.parameters()))
    n_tokens = len(reading.target) + len(reading.source or [])
    values, slopes = [], []
    for part in alphas.split(max(1, BUDGET // n_tokens)):
        path = Path(embeddings, part)
        with torch.set_grad_enabled(is_graded), Lens(reading.model, put=dict.fromkeys(embeddings, path)):
            logits = reading.compute(repeated(reading.batch, len(part)))
        logits = logits if logits.dim() == 3 else logits[:, None]  # (n, R, V)
        chosen = [logits[:, output.row, output.id] for output in outputs]
        values.append(torch.stack(chosen, dim=1).detach())
        if not is_graded:
            continue
        graded = [torch.autograd.grad(f.sum(), path.points, retain_graph=True, allow_unused=True) for f in chosen]
        slopes.append([stack_gradients(rows, point) for rows, point in zip(zip(*graded), path.points)])
    return torch.cat(values), [torch.cat(parts) for parts in zip(*slopes)], (path.inputs, path.differences)


def stack_gradients(rows: tuple[Tensor | None, ...], point: Tensor) -> Tensor:
    """Stack the gradients of several outputs, (n, R, T, D); an output that does not depend on the input has zeros."""
    return torch.stack([torch.zeros_like(point) if row is None else row for row in rows], dim=1)


class Path:
    """A patch of the embeddings x (n, T, D): row i becomes b + α_i (x − b). It sees source and target in turn."""

    def __init__(self, embeddings: dict[str, TokenEmbedding], alphas: Tensor) -> None:
        self.embeddings, self.alphas = embeddings, alphas
        self.points: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.differences: list[Tensor] = []

    def __call__(self, x: Tensor, name: str) -> Tensor:
        x, embedding = x.detach(), self.embeddings[name]
        baseline = embedding.weight.detach().mean(0) * embedding.scale
        self.inputs.append(x[0])
        self.differences.append(x[0] - baseline)
        self.points.append((baseline + self.alphas[:, None, None] * (x - baseline)).requires_grad_())
        return self.points[-1]


def repeated(batch: Tensors, n: int) -> Tensors:
    """Return a batch of n copies of a single row."""
    return batch.map(lambda tensor: tensor.expand(n, *tensor.shape[1:]))
