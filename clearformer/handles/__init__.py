"""Handles: trained models ready for inference, as `load` returns them. One file per handle.

translator       Translator: translates text        language_model   LanguageModel: continues and scores text
masked_model     MaskedModel: fills blanks          sentence_scorer  SentenceScorer: p(a sentence has no wrong word)
classifier       Classifier: a label for a text     tagger           Tagger: a label for each word
text_encoder     TextEncoder: a vector for a text   transcriber      Transcriber: transcribes speech
image_classifier, image_autoencoder                 based on ImageModel: labels or codes for images

Every handle lists the `verbs` it supports, and handle(inputs) does the `main` one. Methods take one text or file and
return one result, or take a list and return a list (inputs.py). A handle prints what it is, in a notebook as a table.

Each verb calls one method, which is the same on every handle that supports the verb:

    classify     predict(inputs, pairs, top, errors); default_top, json_key, is_pair for the command line
    score        rank(texts, source, closed)
    generate     writer(chat) -> Writer
    others       the method of the same name: translate, transcribe, fill, repair, embed, neighbours

`embed` and `plot` use the encoder that the model's task returns: a handle with embed(inputs).
"""
