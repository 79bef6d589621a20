"""Load trained models, given by their folder or by the name of a bundled model.

folder    find the folder of a model, and read its recipe, weights, tokenizers and classes
open      load all of these as one value, Pretrained; a partially fine-tuned model is loaded with its base model
write     write a model as a run folder
"""
