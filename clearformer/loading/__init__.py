"""A trained model by folder or bundled name.

folder    which folder a name means, and what lies in it: recipe, weights, tokenizers, classes
open      all of it as one value, Pretrained; a model that was tuned in part with its base
write     a run folder written from a model
"""
