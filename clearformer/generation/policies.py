"""How tokens are chosen, on the device and in place: the policies of the static decoder (static.py).

    Sampling    W independent sequences per sentence: greedy, or drawn with temperature, top-k, top-p
    Beam        the W best hypotheses per sentence, and the pool of the W best finished ones

A policy has a row for each sentence in flight. `choose` reads the logits of a step and writes the next tokens and all
bookkeeping into tensors of fixed shape; nothing waits for the host. The rules are the same as in decode.py and beam.py,
which are the plain form and the reference of the tests.
"""

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from clearformer.generation.beam import largest, penalty
from clearformer.generation.decode import NEVER, DecodeConfig, Hypothesis, finish, until
from clearformer.generation.sampling import draw_token, draws
from clearformer.layers.static_cache import Buffers
from clearformer.toolchain import can_compile


class Policy(Buffers):
    """The tensors of every policy: tokens (B, W), the next input; length, limits and done (B,); history (B, W, T)."""

    def __init__(self, n_rows: int, width: int, n_tokens: int, eos: int, config: DecodeConfig, like: Tensor) -> None:
        """`like` is a weight of the model: the policy uses its device, and its precision, but at least float32."""
        self.width, self.n_tokens, self.eos, self.config = width, n_tokens, eos, config
        self.dtype, device = torch.promote_types(like.dtype, torch.float32), like.device
        self.tokens = torch.zeros(n_rows, width, dtype=torch.long, device=device)
        self.length, self.limits = (torch.zeros(n_rows, dtype=torch.long, device=device) for _ in range(2))
        self.done = torch.ones(n_rows, dtype=torch.bool, device=device)  # unused rows count as finished
        # The last place is for tokens that nobody reads: the output of finished rows.
        self.history = torch.zeros(n_rows, width, n_tokens + 1, dtype=torch.long, device=device)

    def begin(self, first: Tensor, limits: Tensor) -> None:
        """Start a sentence in every row, with its first input token and its maximum output length; 0: none, (B,)."""
        self.tokens.copy_(first[:, None].expand(-1, self.width))
        self.limits.copy_(limits)
        self.done.copy_(limits == 0)
        self.length.zero_()

    def admit(self, at: Tensor, first: Tensor, limits: Tensor) -> None:
        """Start a sentence in the rows `at`, as `begin` does in all."""
        self.tokens[at] = first[:, None].expand(-1, self.width)
        self.limits[at] = limits
        self.done[at] = limits == 0
        self.length.index_fill_(0, at, 0)

    def notice(self, prompts: Sequence[Sequence[int]]) -> None:
        """Note the tokens of the prompts, one per row, for the repetition penalty."""

    def forbid_eos(self, scores: Tensor) -> None:
        """Set the score of EOS to −∞ in the rows that have fewer than `min_length` tokens. Overwrites scores."""
        if self.config.min_length > 0:
            scores[:, :, self.eos].masked_fill_(self.length[:, None] < self.config.min_length, NEVER)

    def best_and_total(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best token that is allowed, and log Σ exp(logits): (B, W, V) -> (B, W), (B, W)."""
        if has_kernels(logits, self.dtype):
            from clearformer.layers import triton_kernels

            lengths = (self.length, self.config.min_length) if self.config.min_length > 0 else ()
            return triton_kernels.best_and_total(logits, self.eos, *lengths)
        total = logits.to(self.dtype).logsumexp(-1)
        self.forbid_eos(logits)
        return logits.argmax(-1), total

    def place(self) -> Tensor:
        """Return where the next token of each row belongs in its history, (B, 1, 1)."""
        return torch.where(self.done, self.n_tokens, self.length)[:, None, None]

    def end_step(self, done: Tensor) -> None:
        self.length += ~self.done
        self.done |= done

    def roll(self, rngs: Sequence[Random | None], n_steps: int) -> None:
        """Prepare the random numbers of the next steps; rngs has one generator per row, None for unused rows."""

    def stop(self, at: Tensor, stopped: Tensor) -> None:
        """End the sequences that are marked in stopped (n, W), of the rows `at`."""
        raise NotImplementedError

    def choose(self, logits: Tensor) -> Tensor | None:
        """Choose the next tokens from logits (B, W, V); returns the parents (B, W) of a beam, or None."""
        raise NotImplementedError

    def results(self, rows: Tensor) -> list[list[Hypothesis]]:
        """Return the hypotheses of the given rows, best first."""
        raise NotImplementedError


class Sampling(Policy):
    """Independent sequences. Temperature 0 is greedy search, which needs no random numbers."""

    MAX_STEPS = 16  # steps for which random numbers can be prepared

    def __init__(
        self, n_rows: int, width: int, n_tokens: int, eos: int, config: DecodeConfig, like: Tensor, vocab: int
    ) -> None:
        super().__init__(n_rows, width, n_tokens, eos, config, like)
        device = like.device
        self.ended = torch.zeros(n_rows, width, dtype=torch.bool, device=device)
        self.logprobs = torch.zeros(n_rows, width, n_tokens + 1, dtype=self.dtype, device=device)
        self.is_random, self.is_penalised = config.temperature > 0, config.repetition_penalty != 1.0
        if self.is_random:
            self.dice = torch.zeros(n_rows, width, self.MAX_STEPS, device=device)
            self.turn = torch.zeros(n_rows, 1, 1, dtype=torch.long, device=device)
        if self.is_penalised:
            self.seen = torch.zeros(n_rows, width, vocab, dtype=torch.bool, device=device)

    def begin(self, first: Tensor, limits: Tensor) -> None:
        super().begin(first, limits)
        self.ended.zero_()
        if self.is_penalised:
            self.seen.zero_()

    def admit(self, at: Tensor, first: Tensor, limits: Tensor) -> None:
        super().admit(at, first, limits)
        self.ended.index_fill_(0, at, False)

    def notice(self, prompts: Sequence[Sequence[int]]) -> None:
        if self.is_penalised:
            for row, prompt in enumerate(prompts):
                self.seen[row, :, list(prompt)] = True

    def roll(self, rngs: Sequence[Random | None], n_steps: int) -> None:
        if self.is_random:
            n = n_steps * self.width
            uniform = torch.tensor([[0.0] * n if rng is None else draws(rng, n) for rng in rngs])
            self.dice[:, :, :n_steps] = uniform.unflatten(1, (n_steps, self.width)).mT.to(self.dice.device)
            self.turn.zero_()

    def choose(self, logits: Tensor) -> None:
        best, total = self.best_and_total(logits)
        if self.is_random or self.is_penalised:
            allowed = self.penalised(logits)
            self.forbid_eos(allowed)
            best = self.next_tokens(allowed)
        self.settle(best, total, logits)
        if self.is_random:
            self.turn += 1
        if self.is_penalised:
            self.seen.scatter_(2, self.tokens[:, :, None], True)

    def settle(self, best: Tensor, total: Tensor, logits: Tensor) -> None:
        """Note the tokens of a step, (B, W): EOS in sequences that have ended, otherwise `best`."""
        if has_kernels(logits, self.dtype):
            from clearformer.layers import triton_kernels

            progress = (self.tokens, self.ended, self.done, self.length, self.limits)
            triton_kernels.settle(best, total, logits, *progress, self.history, self.logprobs, self.eos)
            return
        tokens = best.masked_fill(self.ended, self.eos)
        chosen = logits.gather(2, tokens[:, :, None]).to(self.dtype) - total[:, :, None]
        chosen = chosen.masked_fill(self.ended[:, :, None], 0.0)
        places = self.place().expand(-1, self.width, 1)
        self.history.scatter_(2, places, tokens[:, :, None])
        self.logprobs.scatter_(2, places, chosen)
        self.tokens.copy_(tokens)
        self.ended |= tokens == self.eos
        self.end_step(self.ended.all(1) | (self.length + 1 >= self.limits))

    def next_tokens(self, logits: Tensor) -> Tensor:
        if not self.is_random:
            return logits.argmax(-1)
        uniform = self.dice.gather(2, self.turn.expand(-1, self.width, 1))[:, :, 0]
        return draw_token(logits, uniform, self.config.temperature, self.config.top_k, self.config.top_p)

    def penalised(self, logits: Tensor) -> Tensor:
        if not self.is_penalised:
            return logits
        theta = self.config.repetition_penalty
        return torch.where(self.seen, torch.where(logits > 0, logits / theta, logits * theta), logits)

    def stop(self, at: Tensor, stopped: Tensor) -> None:
        """End the sequences that are marked in stopped (n, W), of the rows `at`."""
        self.ended[at] |= stopped
        self.done |= self.ended.all(1)

    def results(self, rows: Tensor) -> list[list[Hypothesis]]:
        """Return the sequences of the given rows, the most probable first; greedy ones with a length penalty."""
        hypotheses = []
        tokens, logprobs, lengths = (x[rows].tolist() for x in (self.history, self.logprobs, self.length))
        for sequences, values, n in zip(tokens, logprobs, lengths):
            norm = 1.0 if self.is_random else penalty(max(n, 1), self.config)
            outcomes = [finish(t[:n], v[:n], self.eos, norm) for t, v in zip(sequences, values)]
            hypotheses.append(sorted(outcomes, key=lambda outcome: -outcome.logprob))
        return hypotheses


class Beam(Policy):
    """Beam search. Before the first step, one hypothesis is possible and the others have log p = −∞."""

    def __init__(self, n_rows: int, width: int, n_tokens: int, eos: int, config: DecodeConfig, like: Tensor) -> None:
        super().__init__(n_rows, width, n_tokens, eos, config, like)
        device = like.device
        self.logprob, self.pool_score, self.pool_logprob = (
            torch.zeros(n_rows, width, dtype=self.dtype, device=device) for _ in range(3)
        )
        self.pool_length = torch.zeros(n_rows, width, dtype=torch.long, device=device)
        self.pool_history = torch.zeros_like(self.history)
        self.places = torch.arange(n_tokens + 1, device=device)

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in super().tensors() if tensor is not self.places]

    def begin(self, first: Tensor, limits: Tensor) -> None:
        super().begin(first, limits)
        self.logprob.fill_(NEVER)
        self.logprob[:, 0].zero_()
        self.pool_score.fill_(NEVER)

    def admit(self, at: Tensor, first: Tensor, limits: Tensor) -> None:
        super().admit(at, first, limits)
        self.logprob.index_fill_(0, at, NEVER)
        self.logprob[:, 0].index_fill_(0, at, 0.0)
        self.pool_score.index_fill_(0, at, NEVER)

    def choose(self, logits: Tensor) -> Tensor:
        width, length = self.width, self.length + 1  # after this step
        candidates, logprob, parents = self.extensions(logits)  # (B, 2W)
        ended = (candidates == self.eos) | (length >= self.limits)[:, None]
        # The history of every candidate that may be kept: the first W may enter the pool, the survivors stay live.
        self.merge(logprob[:, :width], ended[:, :width], candidates[:, :width], parents[:, :width], length)
        alive, order = logprob.masked_fill(ended, NEVER).topk(width, dim=1)
        tokens, parents = candidates.gather(1, order), parents.gather(1, order)
        self.history.copy_(self.extended(tokens, parents))
        self.tokens.copy_(tokens)
        self.logprob.copy_(alive)
        self.end_step(self.is_settled(length) | (length >= self.limits))
        return parents

    def extensions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the 2W most probable one-token extensions: tokens, log p and parents, (B, 2W) each."""
        _, total = self.best_and_total(logits)
        self.forbid_eos(logits)
        n = 2 * self.width
        best, tokens = largest(logits, min(n, logits.size(2)))  # (B, W, ≤2W)
        each = best.size(2)
        logprobs = best.to(self.dtype) + (self.logprob - total)[:, :, None]
        logprob, order = logprobs.flatten(1).topk(min(n, self.width * each), dim=1)
        return tokens.flatten(1).gather(1, order), logprob, order // each

    def extended(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Return the histories of the parents with one more token: (B, W, T)."""
        before = self.history.gather(1, parents[:, :, None].expand(-1, -1, self.history.size(2)))
        return torch.where(self.places == self.place(), tokens[:, :, None], before)

    def merge(self, logprob: Tensor, ended: Tensor, tokens: Tensor, parents: Tensor, length: Tensor) -> None:
        """Add finished candidates (B, W) to the pool, and keep the best W of all."""
        new = logprob.masked_fill(~ended | self.done[:, None], NEVER)
        norm = penalty(length.to(self.dtype), self.config)[:, None]
        score, order = torch.cat([self.pool_score, new / norm], dim=1).topk(self.width, dim=1)
        history = torch.cat([self.pool_history, self.extended(tokens, parents)], dim=1)
        lengths = torch.cat([self.pool_length, length[:, None].expand(-1, self.width)], dim=1)
        self.pool_logprob.copy_(torch.cat([self.pool_logprob, new], dim=1).gather(1, order))
        self.pool_history.copy_(history.gather(1, order[:, :, None].expand(-1, -1, history.size(2))))
        self.pool_length.copy_(lengths.gather(1, order))
        self.pool_score.copy_(score)

    def is_settled(self, length: Tensor) -> Tensor:
        """Whether, for each sentence, no live hypothesis can still displace the worst finished one: (B,)."""
        config = self.config
        is_patient = config.stop == "never" and config.length_penalty > 0 and config.beam > 1
        reach = (self.limits if is_patient else length).to(self.dtype)
        return self.logprob[:, 0] / penalty(reach, config) <= self.pool_score[:, -1]

    def results(self, rows: Tensor) -> list[list[Hypothesis]]:
        pool = (self.pool_history, self.pool_length, self.pool_score, self.pool_logprob)
        columns = (tensor[rows].tolist() for tensor in pool)
        return [
            [
                Hypothesis(until(tokens[:n], self.eos), score, logprob)
                for tokens, n, score, logprob in zip(*row)
                if score > NEVER
            ]
            for row in zip(*columns)
        ]


def has_kernels(logits: Tensor, dtype: torch.dtype) -> bool:
    """Whether the bookkeeping of a step, which is in `dtype`, can use the Triton kernels."""
    return logits.is_cuda and dtype == torch.float32 and can_compile()
