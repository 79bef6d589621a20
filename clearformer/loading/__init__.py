"""A trained model by folder or bundled name, in one call.

    open_model    a run folder, or one of Hugging Face's  ->  recipe, network, tokenizers: to go on with
    load          the same, ready for use                 ->  the handle that USES names: Translator, ImageClassifier …
    load_encoder  the same, as a maker of vectors         ->  Encoder

folders    which folder a name means
contents   what lies in it, ours or Hugging Face's: recipe, weights, tokenizers, classes
opened     Opened: these as one model
bases      a model on another: where its base lies, and what it takes from it
opening    open_model, open_base
handles    load and its kin
"""
