from clearformer.errors import MachineError
from clearformer.signals import postponed

try:
    with postponed():  # imports matplotlib
        from clearformer.plots.alternatives import plot_alternatives
        from clearformer.plots.attention import plot_attention, plot_look
        from clearformer.plots.batch_norm import plot_batch_norm
        from clearformer.plots.beam_tree import plot_beam_tree
        from clearformer.plots.comparison import plot_comparison
        from clearformer.plots.complexity import plot_complexity
        from clearformer.plots.curves import plot_curves
        from clearformer.plots.embeddings import plot_embeddings
        from clearformer.plots.gradients import plot_gradients
        from clearformer.plots.growth import plot_growth
        from clearformer.plots.images import plot_heat, plot_tiles
        from clearformer.plots.level_sets import plot_level_sets
        from clearformer.plots.lines import plot_lines
        from clearformer.plots.logit_attribution import plot_logit_attribution
        from clearformer.plots.logit_lens import plot_logit_lens
        from clearformer.plots.neighbours import plot_neighbours
        from clearformer.plots.optimizers import plot_optimizers
        from clearformer.plots.panels import plot_panels
        from clearformer.plots.positions import plot_positions
        from clearformer.plots.results import plot_calibration, plot_confusion, plot_errors
        from clearformer.plots.schedules import plot_schedules
        from clearformer.plots.shifts import plot_shifts
        from clearformer.plots.sweep import plot_sweep
        from clearformer.plots.walk import plot_walk
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("matplotlib"):
        raise
    raise MachineError("figures need matplotlib, which is not installed", "pip install 'clearformer[plots]'") from None

__all__ = [
    "plot_alternatives",
    "plot_attention",
    "plot_batch_norm",
    "plot_beam_tree",
    "plot_calibration",
    "plot_comparison",
    "plot_complexity",
    "plot_confusion",
    "plot_curves",
    "plot_embeddings",
    "plot_errors",
    "plot_gradients",
    "plot_growth",
    "plot_heat",
    "plot_level_sets",
    "plot_lines",
    "plot_logit_attribution",
    "plot_logit_lens",
    "plot_look",
    "plot_neighbours",
    "plot_optimizers",
    "plot_panels",
    "plot_positions",
    "plot_schedules",
    "plot_shifts",
    "plot_sweep",
    "plot_tiles",
    "plot_walk",
]
