"""One model of every task, as zero configuration trains it, run by transformers and by onnxruntime: the same logits.

A format that a model lacks is refused in one sentence. `test_export_trained.py` has the models of --exportable.
"""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor

import clearformer
from clearformer.data.batch import Batch, EncoderBatch, ImageBatch, TextBatch
from clearformer.data.recordings import pad_sounds
from clearformer.errors import CheckpointError
from clearformer.loading.open import open_model
from clearformer.verbs.export import export_model
from clearformer.verbs.load import load

from ..tasks.tones import tone, write_wav

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.slow

NOUNS = {"dog": "chien", "cat": "chat", "man": "homme", "tree": "arbre", "book": "livre"}
VERBS = {"sees": "voit", "likes": "aime", "hears": "entend"}
TRIPLES = list(product(NOUNS, VERBS, NOUNS))
ENGLISH = [f"the {a} {verb} a {b}." for a, verb, b in TRIPLES]
TEXTS = ["the dog sees a tree.", "a book.", "the old man likes the unknown river."]
SMALL = ["model.d_model=16"]
STACKS = ["model.n_encoder_layers=1", "model.n_decoder_layers=1"]
LARGE = ["image.size=97", "model.size=97", "model.stem=7x7"]  # what zero configuration chooses with a GPU
T5 = [*STACKS, *SMALL, "model.d_ff=46", "model.n_heads=2", "model.d_head=13"]
TASKS: dict[str, dict[str, Any]] = {  # the data, the model and the settings; a model is small where its preset is large
    "translator": {"data": "pairs", "settings": STACKS},
    "t5 translator": {"data": "pairs", "model": "t5", "settings": T5},
    "recurrent translator": {"data": "pairs", "model": "bahdanau", "settings": [*SMALL, "model.d_embedding=12"]},
    "gpt": {"data": "text", "settings": ["model.n_layers=2"]},
    "lstm": {"data": "text", "model": "lstm", "settings": SMALL},
    "bert": {"data": "text", "model": "bert"},
    "t5": {"data": "text", "model": "t5", "settings": T5},
    "sentence scorer": {"data": "text", "model": "bert", "settings": ["objective.kind=sentence-score"]},
    "classifier": {"data": "labels"},
    "regression": {"data": "values", "settings": ["data.regression=true"]},
    "tagger": {"data": "words"},
    "recurrent classifier": {"data": "labels", "model": "bigru"},
    "convolutional classifier": {"data": "labels", "model": "textcnn"},
    "images": {"data": "images"},
    "large images": {"data": "large images", "settings": LARGE},
    "autoencoder": {"data": "images", "model": "autoencoder-conv"},
    "speech": {"data": "recordings", "settings": [*SMALL, "model.n_layers=2"]},
}
Run = Callable[[str], Path]


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train the model of a task with zero configuration for five steps, once."""
    root = tmp_path_factory.mktemp("runs")

    def train(task: str, **options: Any) -> Path:
        out = root / "-".join([task, *options])
        if not out.exists():
            settings = dict(TASKS[task])
            with torch.enable_grad():
                data = write(settings.pop("data"), root)
                clearformer.train(**data, **settings, **options, steps=5, out=out, device="cpu")
        return out

    return train


def write(kind: str, folder: Path) -> dict[str, Any]:
    """Write the data of a task; returns the argument of `train`."""
    noise = np.random.default_rng(0)
    if kind == "pairs":
        return {"pairs": [(f"the {a} {v} a {b}.", f"le {NOUNS[a]} {VERBS[v]} un {NOUNS[b]}.") for a, v, b in TRIPLES]}
    if kind == "text":
        (folder / "text.txt").write_text("\n".join(ENGLISH * 5))
        return {"text": folder / "text.txt"}
    if kind == "words":
        rows = ["\n".join(f"{word} {'NOUN' if word in NOUNS else 'O'}" for word in s[:-1].split()) for s in ENGLISH]
        (folder / "tags.conll").write_text("\n\n".join(rows) + "\n")
        return {"labels": folder / "tags.conll"}
    if kind in ("labels", "values"):
        answer = (lambda s: "animal" if "dog" in s else "none") if kind == "labels" else (lambda s: len(s) / 7)
        return {"labels": [(s, answer(s)) for s in ENGLISH]}
    if kind == "recordings":
        return {
            "recordings": [(write_wav(folder / f"{i}.wav", tone(w, 0.3 + i / 99)), w) for i, w in enumerate(SPOKEN)]
        }
    size = 97 if kind == "large images" else 23
    for name, i in product(("red", "blue"), range(13)):
        (folder / kind / name).mkdir(parents=True, exist_ok=True)
        image = noise.integers(0, 100, (size, size, 3), dtype=np.uint8)
        image[:, :, 0 if name == "red" else 2] += 100
        Image.fromarray(image).save(folder / kind / name / f"{i}.png")
    return {"images": folder / kind}


SPOKEN = ["low", "mid", "high"] * 7


def assert_close(theirs: Any, ours: Tensor) -> None:
    """Both in float32, with sums in another order."""
    theirs = torch.as_tensor(theirs)
    assert theirs.shape == ours.shape
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4 * max(1.0, float(ours.abs().max())))


def padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    T = max(map(len, rows))
    mask = torch.tensor([[1] * len(row) + [0] * (T - len(row)) for row in rows])
    return torch.tensor([row + [pad] * (T - len(row)) for row in rows]), mask


def onnx_of(run: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    export_model(run, folder, "onnx")
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session, json.loads((folder / "model.json").read_text())


# --- Hugging Face


@pytest.mark.parametrize(("task", "model_type"), [("translator", "pegasus"), ("t5 translator", "t5"), ("t5", "t5")])
@torch.no_grad()
def test_an_encoder_decoder_in_transformers(run: Run, tmp_path: Path, task: str, model_type: str) -> None:
    assert export_model(run(task), tmp_path / "hub")["model_type"] == model_type
    ours, tok = open_model(run(task)), transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hub").eval()
    batch = tok(TEXTS, padding=True, return_tensors="pt")
    eos = ours.source_tokenizer.eos_id
    source, mask = padded([[*row, eos] for row in ours.source_tokenizer.encode(TEXTS)], ours.source_tokenizer.pad_id)
    assert batch["input_ids"].equal(source)
    assert batch["attention_mask"].equal(mask)
    first = theirs.config.decoder_start_token_id
    target, _ = padded([[first, *row] for row in ours.target_tokenizer.encode(TEXTS[::-1])], first)
    logits = theirs(**batch, decoder_input_ids=target).logits
    assert_close(logits, ours.network.eval()(Batch(source, mask.bool(), target, target)))


@pytest.mark.parametrize(("task", "model_type"), [("gpt", "gpt2"), ("bert", "bert"), ("sentence scorer", "bert")])
@torch.no_grad()
def test_a_language_model_in_transformers(run: Run, tmp_path: Path, task: str, model_type: str) -> None:
    assert model_type in export_model(run(task), tmp_path / "hub")["model_type"]
    ours, tok = open_model(run(task)), transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    name = json.loads((tmp_path / "hub" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "hub").eval()
    batch = tok(TEXTS, padding=True, return_tensors="pt")
    tokens, mask = batch["input_ids"], batch["attention_mask"].bool()
    network = ours.network.eval()
    if task == "gpt":
        expected = network(TextBatch(tokens, tokens))
    else:
        ids, _ = ours.tokenizer.encode_with_specials(TEXTS)
        assert tokens.equal(padded(ids, ours.tokenizer.pad_id)[0])
        hidden = network.hidden(EncoderBatch(tokens, mask))
        expected = network.head(hidden) if task == "bert" else network.next_sentence(network.pooled(hidden))
    logits = theirs(**batch).logits
    is_of_words = expected.dim() == 3
    assert_close(logits[mask] if is_of_words else logits, expected[mask] if is_of_words else expected)


@torch.no_grad()
def test_a_regression_in_transformers(run: Callable[..., Path], tmp_path: Path) -> None:
    folder = run("regression", exportable=True)
    assert export_model(folder, tmp_path / "hub")["model_type"] == "megatron-bert"
    tok = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hub").eval()
    logits = theirs(**tok(TEXTS, padding=True, return_tensors="pt")).logits
    assert_close(logits, load(folder).logits(TEXTS))
    assert_close(logits[:, 0], torch.tensor(load(folder).values(TEXTS)))
    assert load(tmp_path / "hub").values(TEXTS) == load(folder).values(TEXTS)


@torch.no_grad()
def test_a_classifier_of_large_images_in_transformers(run: Run, tmp_path: Path) -> None:
    assert export_model(run("large images"), tmp_path / "hub")["model_type"] == "resnet"
    ours = open_model(run("large images"))
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hub").eval()
    assert ours.config.stem == "7x7"
    pixels = torch.randn(3, 3, ours.config.size, ours.config.size)
    assert_close(theirs(pixels).logits, ours.network.eval()(ImageBatch(pixels)))
    assert list(theirs.config.id2label.values()) == ours.classes


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("recurrent translator", "transformers has no recurrent translator"),
        ("lstm", "transformers has no recurrent language model of this form"),
        ("classifier", "no MegatronBert classifier with pooling = mean"),
        ("recurrent classifier", "transformers has no recurrent text classifier"),
        ("convolutional classifier", "transformers has no convolutional text classifier"),
        ("images", "no ResNet for small images"),
        ("autoencoder", "transformers has no image autoencoder"),
        ("speech", "transformers has no speech recogniser with recurrent layers"),
    ],
)
def test_what_transformers_lacks_is_refused(run: Run, tmp_path: Path, task: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match=f"{reason}(.|\n)*onnx"):
        export_model(run(task), tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


# --- ONNX


@pytest.mark.parametrize("task", ["translator", "t5 translator", "recurrent translator", "t5"])
@torch.no_grad()
def test_an_encoder_decoder_in_onnx(run: Run, tmp_path: Path, task: str) -> None:
    ours, (session, facts) = open_model(run(task)), onnx_of(run(task), tmp_path / "onnx")
    source, mask = padded([[*r, facts["source_eos"]] for r in ours.source_tokenizer.encode(TEXTS)], facts["pad"])
    feeds = {"source": source.numpy(), "mask": mask.bool().numpy(), "max_new": np.array(11)}
    tokens, logprobs = map(torch.from_numpy, session.run(None, feeds))
    first = getattr(ours.target_tokenizer, f"{getattr(ours.network, 'begins_with', 'bos')}_id")
    target = torch.cat([torch.full((3, 1), first), tokens[:, :-1]], dim=1)
    logits = ours.network.eval()(Batch(source, mask.bool(), target, target))
    assert_greedy(tokens, logprobs, logits, facts["eos"])


@pytest.mark.parametrize("task", ["gpt", "lstm"])
@torch.no_grad()
def test_a_language_model_in_onnx(run: Run, tmp_path: Path, task: str) -> None:
    ours, (session, facts) = open_model(run(task)), onnx_of(run(task), tmp_path / "onnx")
    prompt = torch.tensor(ours.tokenizer.encode(["the dog sees"]) * 2)
    prompt[1] = prompt[1].flip(0)
    tokens, logprobs = map(torch.from_numpy, session.run(None, {"prompt": prompt.numpy(), "max_new": np.array(11)}))
    whole = torch.cat([prompt, tokens], dim=1)[:, :-1]
    logits = ours.network.eval()(TextBatch(whole, whole))[:, prompt.size(1) - 1 :]
    assert_greedy(tokens, logprobs, logits, facts["eos"])


def assert_greedy(tokens: Tensor, logprobs: Tensor, logits: Tensor, eos: int) -> None:
    """Each token is the most probable one, with its log-probability; only EOS follows EOS."""
    is_live = (tokens == eos).cumsum(1) - (tokens == eos).long() == 0
    expected = logits.log_softmax(-1)
    best, chosen = expected.max(-1).values, expected.gather(-1, tokens[:, :, None])[:, :, 0]
    assert_close(best[is_live], chosen[is_live])  # equal unless two tokens are as probable
    assert_close(logprobs, chosen.where(is_live, 0.0))
    assert (tokens[~is_live] == eos).all()


@pytest.mark.parametrize(
    "task",
    ["bert", "sentence scorer", "classifier", "regression", "recurrent classifier", "convolutional classifier"],
)
@torch.no_grad()
def test_a_reader_of_texts_in_onnx(run: Run, tmp_path: Path, task: str) -> None:
    ours, (session, facts) = load(run(task)), onnx_of(run(task), tmp_path / "onnx")
    ids, kinds = ours.tokenizer.encode_with_specials(TEXTS)
    (tokens, mask), (segments, _) = padded(ids, facts["pad"]), padded(kinds, 0)
    given = {"tokens": tokens, "mask": mask.bool(), "segments": segments}
    (logits,) = session.run(None, {name: given[name].numpy() for name in facts["inputs"]})
    if task == "bert":
        expected = ours.model.eval()(EncoderBatch(tokens, mask.bool(), segments))
        assert_close(logits[mask.bool()], expected[mask.bool()])
    elif task == "sentence scorer":
        scores = torch.from_numpy(logits).log_softmax(-1)[:, 0]
        assert_close(scores, torch.tensor([score.logprob for score in ours.score(TEXTS)]))
        assert facts["classes"] == ["original", "changed"]
    else:
        assert_close(logits, ours.logits(TEXTS))
        assert facts["classes"] == ours.classes


@torch.no_grad()
def test_a_tagger_in_onnx(run: Run, tmp_path: Path) -> None:
    ours, (session, facts) = load(run("tagger")), onnx_of(run("tagger"), tmp_path / "onnx")
    text = "the dog sees a tree"
    (row,), (kinds,) = ours.tokenizer.encode_with_specials([text])
    given = {"tokens": np.array([row]), "mask": np.ones((1, len(row)), bool), "segments": np.array([kinds])}
    (logits,) = session.run(None, {name: given[name] for name in facts["inputs"]})
    words = text.split()
    starts = [1 + sum(len(ids) for ids in ours.tokenizer.encode(words[:i])) for i in range(len(words))]
    assert_close(logits[0, starts], ours.logits([text]))


@pytest.mark.parametrize("task", ["images", "large images", "autoencoder"])
@torch.no_grad()
def test_an_image_model_in_onnx(run: Run, tmp_path: Path, task: str) -> None:
    ours, (session, facts) = open_model(run(task)), onnx_of(run(task), tmp_path / "onnx")
    assert ours.recipe.image is not None
    torch.manual_seed(0)
    samples = torch.randint(256, (3, facts["channels"], facts["size"], facts["size"]), dtype=torch.uint8)
    pixels = ours.recipe.image.normalise(samples)
    *_, values = session.run(facts["outputs"], {"pixels": pixels.numpy()})
    assert_close(values, ours.network.eval()(ImageBatch(pixels)))


@torch.no_grad()
def test_a_speech_recogniser_in_onnx(run: Run, tmp_path: Path) -> None:
    ours, (session, facts) = load(run("speech")), onnx_of(run("speech"), tmp_path / "onnx")
    noise = np.random.default_rng(0).normal(0, 0.01, facts["rate"])
    sounds = [np.concatenate([tone(word, 0.4, facts["rate"]), noise[: 99 * i]]) for i, word in enumerate(SPOKEN[:3])]
    batch = pad_sounds([(sound * 2**15).astype(np.int16) for sound in sounds])
    logits, n_frames = session.run(None, {"samples": batch.sounds.numpy(), "lengths": batch.lengths.numpy()})
    expected, n = ours.logits(batch)
    assert n_frames.tolist() == n.tolist()
    for row, length in enumerate(n.tolist()):
        assert_close(logits[row, :length], expected[row, :length])
    assert facts["blank"] == logits.shape[-1] - 1
