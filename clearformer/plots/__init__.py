from clearformer.plots.attention import plot_attention
from clearformer.plots.curves import plot_curves

__all__ = ["plot_attention", "plot_curves"]
