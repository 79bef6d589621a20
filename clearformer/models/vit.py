"""The Vision Transformer: a Transformer encoder over the patches of an image (Dosovitskiy et al. 2021).

    z = patches(pixels)               [class ; E x_1 ; … ; E x_P] + positions        layers/patches.py
    z = norm(blocks(z))               L pre-norm blocks, every patch attends to every other
    h = z_class, or the mean of z     (B, D)

Locality and translation equivariance are built into convolutions; this network has to learn both. An image of another
size than the model was built for has more or fewer patches, and their positions are interpolated.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.init import gaussian
from clearformer.layers.patches import Patches
from clearformer.layers.positions import PositionConfig
from clearformer.models.image_model import ImageModelConfig, ImageNetwork
from clearformer.models.stack import StackConfig, build_stack

SHARED = ("d_model", "d_ff", "n_heads", "activation", "norm_eps", "dropout", "attention_dropout", "activation_dropout")


class ViTConfig(ImageModelConfig):
    """The [model] table of a recipe, for kind = "vit". The defaults are ViT-B/16."""

    kind: Literal["vit"] = "vit"
    patch: int = Field(16, gt=0, description="height and width of a patch in pixels, a divisor of size")
    pooling: Literal["class", "mean"] = Field(
        "class", description="vector that represents an image: class token or mean over patches"
    )
    n_layers: int = Field(12, gt=0, description="number of blocks")
    d_model: int = Field(768, gt=0, description="width of the model, a multiple of n_heads")
    d_ff: int = Field(3072, gt=0, description="width of the feed-forward networks")
    n_heads: int = Field(12, gt=0, description="attention heads per layer")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = Field("gelu", description="feed-forward activation")
    norm_eps: float = Field(1e-6, gt=0, description="ε of every norm")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on embeddings and sublayer outputs")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on attention patterns")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability inside feed-forward networks")

    def model_post_init(self, _: object) -> None:
        if self.size % self.patch:
            raise ValueError(f"size = {self.size} must be a multiple of patch = {self.patch}")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model = {self.d_model} must be a multiple of n_heads = {self.n_heads}")

    @property
    def stack(self) -> StackConfig:
        """The settings of the blocks. Their stack has no position encoding, because `Patches` adds positions."""
        return StackConfig(**{key: getattr(self, key) for key in SHARED}, positions=PositionConfig(kind="none"))


class ViT(ImageNetwork):
    Config = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig, core: Core | None = None) -> None:
        super().__init__(config, config.d_model)
        side, has_class = config.size // config.patch, config.pooling == "class"
        self.encoder = build_stack(config.stack, config.n_layers, core or FusedCore(), is_causal=False)
        self.apply(gaussian)
        self.patches = Patches(config.channels, config.patch, side, config.d_model, has_class)

    def features(self, pixels: Tensor) -> Tensor:
        x = self.patches(pixels)  # (B, T, D)
        x = self.encoder(x, torch.arange(x.size(1), device=x.device))
        return x[:, 0] if self.config.pooling == "class" else x.mean(1)
