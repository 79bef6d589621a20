"""Models of zero configuration as folders for CTranslate2, run by it and by tokenizers alone: the same texts."""

from itertools import product
from pathlib import Path

import pytest
import tokenizers

import clearformer
from clearformer.errors import CheckpointError
from clearformer.verbs.export import export_model
from clearformer.verbs.load import load

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.slow

NOUNS = {"dog": "chien", "cat": "chat", "man": "homme", "tree": "arbre", "book": "livre"}
VERBS = {"sees": "voit", "likes": "aime", "hears": "entend"}
TRIPLES = list(product(NOUNS, VERBS, NOUNS))
PAIRS = [(f"the {a} {v} a {b}.", f"le {NOUNS[a]} {VERBS[v]} un {NOUNS[b]}.") for a, v, b in TRIPLES]


@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_translator(tmp_path: Path, shared: str) -> None:
    run, folder = tmp_path / "run", tmp_path / "ct2"
    sizes = [f"text.shared={shared}", "model.n_encoder_layers=2", "model.n_decoder_layers=1"]
    clearformer.train(pairs=PAIRS, out=run, steps=20, settings=sizes, device="cpu")
    assert export_model(run, folder, "ctranslate2")["model_type"] == "transformer"
    names = ["tokenizer.json"] * 2 if shared == "true" else ["source.json", "target.json"]
    source, target = (tokenizers.Tokenizer.from_file(str(folder / name)) for name in names)
    texts = [text for text, _ in PAIRS[::17]]
    tokens = [source.encode(text, add_special_tokens=False).tokens for text in texts]
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    options = {"beam_size": 1, "min_decoding_length": 0, "max_decoding_length": 13, "return_scores": True}
    outputs = translator.translate_batch(tokens, **options)
    expected = load(run).candidates(texts, beam=1, max_ratio=1e-9, max_extra=13, length_penalty=1.0)
    for output, (hypothesis, *_) in zip(outputs, expected, strict=True):
        ids = [target.token_to_id(token) for token in output.hypotheses[0]]
        assert ids == hypothesis.tokens
        assert output.scores[0] == pytest.approx(hypothesis.score, rel=0, abs=1e-4)
    assert any(hypothesis.tokens for hypothesis, *_ in expected)


def test_a_language_model(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "ct2"
    (tmp_path / "text.txt").write_text("\n".join(text for text, _ in PAIRS * 5))
    clearformer.train(text=tmp_path / "text.txt", out=run, steps=5, device="cpu")
    assert export_model(run, folder, "ctranslate2")["model_type"] == "gpt"
    tok = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    generator = ctranslate2.Generator(str(folder), compute_type="float32")
    prompts = ["the dog sees", "a book"]
    for prompt, (ours,) in zip(prompts, load(run).generate(prompts, temperature=0, max_new=13), strict=True):
        tokens = tok.encode(prompt, add_special_tokens=False).tokens
        options = {"max_length": 13, "include_prompt_in_result": False, "return_scores": True, "length_penalty": 0}
        (output,) = generator.generate_batch([tokens], **options)
        assert [tok.token_to_id(token) for token in output.sequences[0]] == ours.tokens
        assert output.scores[0] == pytest.approx(ours.logprob, rel=0, abs=1e-4 * max(1.0, abs(ours.logprob)))


def test_what_it_lacks_is_refused(tmp_path: Path) -> None:
    for model, reason in (("bahdanau", "it is a Seq2Seq, not a Transformer"), ("t5", "it is a T5, not a Transformer")):
        small = ["model.d_model=16", *(["model.d_embedding=12"] if model == "bahdanau" else ["model.d_ff=16"])]
        clearformer.train(pairs=PAIRS, model=model, out=tmp_path / model, steps=1, settings=small, device="cpu")
        with pytest.raises(CheckpointError, match=rf"{reason}(.|\n)*--format onnx"):
            export_model(tmp_path / model, tmp_path / "ct2", "ctranslate2")
        assert not (tmp_path / "ct2").exists()
