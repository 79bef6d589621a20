"""An image as a sequence of patches (Dosovitskiy et al. 2021, eq. 1).

    z = [x_class ; E x_1 ; … ; E x_P] + positions         P = (N / F)² patches of F×F pixels, row by row

E is the same matrix for every patch: a convolution whose stride equals its size. The class token `x_class` is learnt,
precedes the patches and represents the image; it is optional. Each position has a learnt vector. An image of
another size has more or fewer patches of the same size, and the grid of positions is interpolated to match.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Patches(nn.Module):
    """Embed pixels (B, C, Y, X) as vectors (B, T, D): the class token, if there is one, then the patches."""

    def __init__(self, channels: int, patch: int, side: int, d_model: int, has_class: bool) -> None:
        super().__init__()
        self.side = side  # patches per side for which the positions are learnt
        self.conv = nn.Conv2d(channels, d_model, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, d_model)) if has_class else None
        self.positions = nn.Parameter(torch.empty(1, side * side + has_class, d_model))
        nn.init.normal_(self.conv.weight, std=self.conv.weight[0].numel() ** -0.5)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        for parameter in self.parameters(recurse=False):
            nn.init.normal_(parameter, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.conv(pixels)  # (B, D, Y/F, X/F)
        positions = self.interpolated(x.size(2), x.size(3))
        x = x.flatten(2).mT  # (B, P, D)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.size(0), -1, -1), x], dim=1)  # (B, P + 1, D)
        return x + positions

    def interpolated(self, n_rows: int, n_columns: int) -> Tensor:
        """Return position vectors (1, T, D) for n_rows × n_columns patches. The class token keeps its vector."""
        if n_rows == n_columns == self.side:
            return self.positions
        first, grid = self.positions.split([int(self.class_token is not None), self.side**2], dim=1)
        grid = grid.mT.unflatten(2, (self.side, self.side))  # (1, D, side, side)
        grid = F.interpolate(grid, size=(n_rows, n_columns), mode="bicubic")
        return torch.cat([first, grid.flatten(2).mT], dim=1)
