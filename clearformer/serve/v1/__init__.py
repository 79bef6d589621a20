"""The paths below /v1: OpenAI's API, and commands of ours in the shape of their --json."""

from clearformer.serve.v1 import chat, classify, completions, embeddings, fill, models, score, transcriptions

PARTS = (models, completions, chat, embeddings, transcriptions, classify, score, fill)
