"""The recurrent encoder–decoder against its equations, written out once more, word by word."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import clearformer
from clearformer import fit
from clearformer.data.batch import Batch
from clearformer.errors import ConfigError
from clearformer.handles.translator import Translator
from clearformer.layers.cells import CELLS
from clearformer.models.seq2seq import Seq2Seq, Seq2SeqConfig
from clearformer.objectives.translation import Translation, TranslationConfig
from clearformer.verbs.load import load

B, S, T, V, D, E, A = 2, 7, 5, 23, 11, 6, 13
both = pytest.mark.parametrize("attention", ["additive", "none"])


def build(**changes: Any) -> Seq2Seq:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"source_vocab": V, "target_vocab": V, "d_model": D, "d_embedding": E, "d_align": A}
    return Seq2Seq(Seq2SeqConfig(**{**sizes, "attention": "additive", **changes})).double().eval()


def batch_of(lengths: tuple[int, ...] = (S, 4)) -> Batch:
    torch.manual_seed(1)
    source, target = torch.randint(3, V, (len(lengths), S)), torch.randint(3, V, (len(lengths), T))
    return Batch(source, torch.arange(S) < torch.tensor(lengths)[:, None], target, target)


def by_the_paper(model: Seq2Seq, source: list[int], target: list[int]) -> Tensor:
    """logits (T, V) of one pair by the equations of appendix A, with s_i in the output, as equation 4 has it."""
    p = {name: tensor.detach() for name, tensor in model.named_parameters()}
    embed = {side: p.get(f"{side}_embedding.weight", p["target_embedding.weight"]) for side in ("source", "target")}

    def gru(x: Tensor, h: Tensor, U: Tensor) -> Tensor:
        """x: what the input gives to r, z and h̃."""
        r = torch.sigmoid(x[:D] + U[:D] @ h)
        z = torch.sigmoid(x[D : 2 * D] + U[D : 2 * D] @ h)
        return (1 - z) * h + z * torch.tanh(x[2 * D :] + U[2 * D :] @ (r * h))

    ways = []
    for way, order in (("", 1), ("_reverse", -1)):
        W, U, b = (p[f"encoder.weights.{part}_l0{way}"] for part in ("weight_ih", "weight_hh", "bias_ih"))
        h, states = torch.zeros(D).double(), []
        for token in source[::order]:
            h = gru(W @ embed["source"][token] + b, h, U)
            states.append(h)
        ways.append(states[::order])
    memory = [torch.cat(pair) for pair in zip(*ways)]
    s = torch.tanh(p["bridge.weight"] @ ways[1][0] + p["bridge.bias"])
    logits = []
    for token in target:
        y = embed["target"][token]
        if model.config.attention == "additive":
            Wa, Ua, ba, v = (p[f"decoder.attn.{n}"] for n in ("query.weight", "key.weight", "key.bias", "score.weight"))
            e = torch.stack([v[0] @ torch.tanh(Wa @ s + Ua @ h + ba) for h in memory])
            c = sum(a * h for a, h in zip(e.softmax(0), memory))
        else:
            c = torch.cat([ways[0][-1], ways[1][0]])
        x = p["decoder.words.weight"] @ y + p["decoder.words.bias"] + p["decoder.context.weight"] @ c
        s = gru(x, s, p["decoder.recur.weight_hh"])
        t = p["readout.weight"] @ torch.cat([s, y, c]) + p["readout.bias"]
        maxout = torch.stack([torch.maximum(t[2 * j], t[2 * j + 1]) for j in range(E)])
        logits.append(p.get("unembedding.weight", p["target_embedding.weight"]) @ maxout)
    return torch.stack(logits)


@both
@pytest.mark.parametrize("share", ["none", "all"])
def test_it_is_the_paper(attention: str, share: str) -> None:
    model, batch = build(cell="gru-notes", attention=attention, share=share), batch_of()
    logits = model(batch)
    for row, n in enumerate((S, 4)):
        expected = by_the_paper(model, batch.source[row, :n].tolist(), batch.target[row].tolist())
        torch.testing.assert_close(logits[row], expected, atol=1e-12, rtol=0)


@both
@pytest.mark.parametrize("cell", CELLS)
def test_padding_and_company_cannot_matter(attention: str, cell: str) -> None:
    model, batch = build(cell=cell, attention=attention), batch_of()
    logits = model(batch)
    alone = model(Batch(batch.source[1:, :4], torch.ones(1, 4).bool(), batch.target[1:], batch.labels[1:]))
    torch.testing.assert_close(logits[1:], alone)


@both
def test_words_not_yet_written_cannot_matter(attention: str) -> None:
    model, batch = build(attention=attention), batch_of()
    target = batch.target.clone()
    target[:, 3] = (target[:, 3] + 1) % V
    moved = (model(batch) != model(Batch(batch.source, batch.source_mask, target, batch.labels))).any(2).any(0)
    assert moved.tolist() == [False, False, False, True, True]


def test_where_it_looks() -> None:
    model, batch = build(), batch_of()
    looks = model.attention_patterns(batch)
    assert looks is not None
    assert looks.shape == (B, 1, 1, T, S)
    torch.testing.assert_close(looks.sum(-1), torch.ones(B, 1, 1, T).double())
    assert not looks[1, ..., 4:].any()
    assert build(attention="none").attention_patterns(batch) is None


@both
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_branches_of_a_search_go_on_from_their_parents(attention: str, cell: str) -> None:
    model, batch = build(cell=cell, attention=attention), batch_of()
    state = model.start(batch.source, batch.source_mask)
    paths = torch.randint(3, V, (B, 3, 1))
    model.step(paths[:, :, 0], state)
    parents = torch.tensor([[2, 2, 0], [1, 0, 1]])
    state.reorder(parents)
    state.keep(torch.tensor([1]))
    new = torch.randint(3, V, (1, 3))
    logits, _ = model.step(new, state)
    for w in range(3):
        path = torch.stack([paths[1, parents[1, w], 0], new[0, w]])[None]
        one = Batch(batch.source[1:], batch.source_mask[1:], path, path)
        torch.testing.assert_close(logits[0, w], model(one)[0, -1])


def test_two_vocabularies_have_two_tables() -> None:
    with pytest.raises(ConfigError, match='share = "all" needs one vocabulary'):
        Seq2SeqConfig.parse({"share": "all", "source_vocab": 5, "target_vocab": 7}, "[model]")
    shared = build(share="all")
    assert shared.source_embedding.weight is shared.target_embedding.weight is shared.unembedding.weight


def test_attention_finds_what_a_summary_forgets() -> None:
    """Say a row of eleven letters backwards: with attention it is learnt in seconds, from one vector it is not."""
    draw = torch.Generator().manual_seed(3)
    objective, losses = Translation(TranslationConfig(label_smoothing=0.0)), {}
    for attention in ("additive", "none"):
        torch.manual_seed(0)
        model = Seq2Seq(
            Seq2SeqConfig(
                source_vocab=9, target_vocab=9, d_model=31, d_embedding=17, attention=attention, dropout=0.0, cell="gru"
            )
        )
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(130):
            source = torch.randint(1, 9, (23, 11), generator=draw)
            labels = source.flip(1)
            target = torch.cat([torch.zeros(23, 1, dtype=torch.long), labels[:, :-1]], dim=1)
            total, n = objective(model, Batch(source, torch.ones_like(source).bool(), target, labels))
            (total / n).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses[attention] = total.item() / n
    assert losses["additive"] < 0.3
    assert losses["none"] > 4 * losses["additive"], losses


def write_pairs(path: Path, n: int) -> Path:
    draw = Random(5)
    words = {"one": "eins", "two": "zwei", "three": "drei", "red": "rot", "dog": "Hund", "cat": "Katze"}
    rows = [draw.choices(list(words), k=draw.randint(2, 4)) for _ in range(n)]
    path.write_text("".join(f"{' '.join(row)}\t{' '.join(words[w] for w in reversed(row))}\n" for row in rows))
    return path


def test_pairs_to_a_translator_that_aligns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "draw_curves", lambda *_: None)
    pairs = write_pairs(tmp_path / "pairs.tsv", 300)
    small = [
        "model.d_model=43", "model.d_embedding=29", "text.kind=word", "text.min_frequency=1", "optim.lr=0.02",
        "model.dropout=0.1", "train.steps=150", "train.tokens=257", "train.validate_every=75", "train.ema=0.9",
        "schedule.warmup=10", "decode.beam=2",
    ]  # fmt: skip
    report = clearformer.train(pairs=pairs, model="bahdanau", settings=small, out=tmp_path / "run", device="cpu")
    assert report["valid"]["bleu"] > 80
    model = load(tmp_path / "run")
    assert isinstance(model, Translator)
    assert model.translate(["red dog", "two red cat"], beam=3) == ["Hund rot", "Katze rot zwei"]
    right, wrong = model.score(["red dog"] * 2, ["Hund rot", "rot Hund"])
    assert right > wrong
    seen = model.align("two red cat", "Katze rot zwei")
    assert seen.pattern.shape == (1, 1, 4, 4)
    assert seen.links() == [(2, 0), (1, 1), (0, 2)]
    assert model.neighbours("dog", 2)


def test_what_does_not_attend_cannot_be_aligned(tmp_path: Path) -> None:
    from clearformer.text import TextConfig, train_tokenizer

    tokenizer = train_tokenizer(["a b c"] * 2, TextConfig(kind="word", min_frequency=1, vocab_size=50))
    model = Seq2Seq(Seq2SeqConfig(source_vocab=tokenizer.vocab_size, target_vocab=tokenizer.vocab_size, d_model=7))
    with pytest.raises(ConfigError, match="has no attention"):
        Translator(model, tokenizer, tokenizer).align("a b", "b a")
