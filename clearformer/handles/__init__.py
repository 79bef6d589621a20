"""What `load` gives: a trained model ready for use, one file for each kind of handle.

translator       Translator: text to text           language_model   LanguageModel: continues and scores text
masked_model     MaskedModel: fills gaps            sentence_scorer  SentenceScorer: is this sentence right?
classifier       Classifier: a label for a text     tagger           Tagger: a label for each word
text_encoder     TextEncoder: a vector for a text   transcriber      Transcriber: speech to text
image_classifier, image_autoencoder                 on ImageModel: labels or codes for images

Every handle names its `verbs`. A verb calls one method, the same on every handle that has the verb:

    classify     predict(inputs, pairs, top, errors); default_top, json_key, is_pair for the command line
    score        rank(texts, source, closed)
    generate     writer(chat), a Writer

`embed` and `plot` ask the model's task for its encoder instead: a handle with embed(inputs) and self_attention(text).
"""
