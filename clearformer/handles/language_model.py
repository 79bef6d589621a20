"""A language model with its tokenizer: it continues and scores texts.

    continuation    p(x_t | x_<t), token by token                generate, stream
    score           log p(x) = Σ_t log p(x_t | x_<t)             score: natural log; perplexity = exp(−log p / tokens)

Every text is preceded by BOS, like every document of the training data.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.generation.decode import DecodeConfig, widen
from clearformer.handles.batching import by_length
from clearformer.handles.chat import Chat
from clearformer.handles.gaps import GapFiller
from clearformer.handles.inputs import one_or_many
from clearformer.handles.scorer import Score, Scorer
from clearformer.handles.text_encoder import TextEmbedder
from clearformer.handles.writer import PLAIN, Writer
from clearformer.text import Tokenizer


class LanguageModel(Writer, Scorer, GapFiller, TextEmbedder):
    """A language model, as returned by `load`."""

    kind = "a language model"
    verbs = ("generate", "score", "fill", "repair", "embed", "evaluate", "neighbours", "plot")
    main = "generate"
    continues = True

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        decode: DecodeConfig = PLAIN,
        name: str = "model",
        opening: Sequence[int] | None = None,
        closed: bool = False,
        template: str | None = None,
    ) -> None:
        """`opening` holds ids to put before every prompt. If it is empty, only an empty prompt gets a token: BOS.

        `closed` means that texts are complete, so that scores include EOS; otherwise texts may be excerpts.
        `template` is the chat template of a model fine-tuned for conversations; see `Chat`.
        """
        super().__init__(model, tokenizer, decode, name)
        self.opening, self.closed, self.template = list(opening or []), closed, template

    def writer(self, chat: bool = False) -> Writer:
        """Return this model, which continues prompts, or, if `chat` is true, a `Chat`, which answers them."""
        return Chat(self, self.template) if chat else self

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of a prompt: at least one, and few enough that at least one token can be generated."""
        return self.encode_all([prompt])[0]

    def encode_all(self, prompts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode(list(prompts))
        rows = [[*self.opening, *ids] or [self.tokenizer.bos_id] for ids in encoded]
        for prompt, ids in zip(prompts, rows):
            self.require_fit(len(ids), prompt)
        return rows

    @one_or_many
    @torch.inference_mode()
    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        """Return log p of each text (natural logarithm), including EOS if `closed`."""
        tok = self.tokenizer
        end = [tok.eos_id] if (self.closed if closed is None else closed) else []
        ids = [[*(self.opening or [tok.bos_id]), *encoded, *end] for encoded in tok.encode(list(texts))]
        for text, encoded in zip(texts, ids):
            self.require_fit(len(encoded) - 1, text)
        results = [Score(text, 0.0, 0) for text in texts]
        for rows in by_length(ids, 4096, 1):
            totals, counts = self.logprobs([ids[row] for row in rows])
            for row, total, n_tokens in zip(rows, totals.tolist(), counts.tolist()):
                results[row] = Score(texts[row], total, n_tokens)
        return results

    def logprobs(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return Σ log p over the tokens after the opening of each row, (B,), and the number of these tokens, (B,)."""
        skipped = len(self.opening or [0]) - 1
        T = max(map(len, rows)) - 1
        tokens = torch.full((len(rows), T), self.tokenizer.pad_id)
        labels = torch.full((len(rows), T), IGNORE)
        for i, row in enumerate(rows):
            tokens[i, : len(row) - 1] = torch.tensor(row[:-1])
            labels[i, skipped : len(row) - 1] = torch.tensor(row[1 + skipped :])
        batch = TextBatch(tokens, labels).to(self.device)
        logprobs = widen(self.model(batch)).log_softmax(-1)  # (B, T, V)
        real = batch.labels != IGNORE
        chosen = logprobs.gather(2, batch.labels.clamp(min=0)[:, :, None])[:, :, 0]
        return (chosen * real).sum(1), real.sum(1)
