import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from safetensors import safe_open

from clearformer import checkpoint

# Test sizes are tiny: a second thread would only be waited for, for seconds when the machine is busy. More are for
# seeing that results do not depend on them.
torch.set_num_threads(int(os.environ.get("CLEARFORMER_TEST_THREADS", "1")))

# A process that is started in the background, or by nohup, ignores these signals; tests send them.
for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

# Tests compare with the plain decoder unless they say otherwise, whatever engines this machine has compiled.
os.environ["CLEARFORMER_CACHE"] = os.devnull

WORDS = ["the", "a", "dog", "cat", "man", "sees", "likes", "hears", "tree", "river", "book", "le", "chien", "chat"]
ENTRIES = ["</s>", "<unk>", "<s>", *WORDS]  # and <pad>, last
PAD = len(ENTRIES)
V = PAD + 4  # rows of the tables, some of them spare
SIDE = {"pad_token_id": PAD, "eos_token_id": 0, "decoder_start_token_id": PAD}
HUB: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": (
        "MarianMTModel",
        {
            "vocab_size": V, "d_model": 14, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "max_position_embeddings": 37,
            "forced_eos_token_id": None, **SIDE,
        },
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": V, "d_model": 14, "num_layers": 2, "num_heads": 3, "d_kv": 5, "d_ff": 11, **SIDE},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "vocab_size": V, "n_embd": 14, "n_layer": 2, "n_head": 2, "n_positions": 37,
            "eos_token_id": 0, "bos_token_id": 0,
        },
    ),
    "llama": (
        "LlamaForCausalLM",
        {
            "vocab_size": V, "hidden_size": 28, "intermediate_size": 11, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 37, "eos_token_id": 0,
            "bos_token_id": 2,
        },
    ),
    "bert": (
        "BertForMaskedLM",
        {
            "vocab_size": V, "hidden_size": 14, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 11, "max_position_embeddings": 37,
        },
    ),
}  # fmt: skip


@pytest.fixture(params=[0o022, 0o077, 0o002], ids=oct)
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    """The mode of a file that is written under some umask."""
    old = os.umask(request.param)
    yield 0o666 & ~request.param
    os.umask(old)


@pytest.fixture
def modes() -> Callable[[Path], set[int]]:
    """Those of all files in a folder."""
    return lambda folder: {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


class HeaderOnly:
    """A safetensors file, or a slice of one of its tensors, that gives names, shapes and metadata, and no numbers."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __enter__(self) -> Self:
        self.file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def get_slice(self, name: str) -> "HeaderOnly":
        return HeaderOnly(self.file.get_slice(name))

    def __getattr__(self, name: str) -> Any:
        assert name in ("keys", "metadata", "get_shape", "get_dtype"), f"a header is all that may be read, not {name}"
        return getattr(self.file, name)


@pytest.fixture
def headers_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, reading a tensor of any safetensors file fails the test."""

    def forbid() -> None:
        monkeypatch.setattr(checkpoint, "safe_open", lambda *call, **more: HeaderOnly(safe_open(*call, **more)))

    return forbid


@pytest.fixture
def hub(tmp_path: Path) -> Callable[..., Path]:
    """A folder as Hugging Face's libraries write it: a small random model, and a tokenizer of seventeen words.

    `is_opened` puts <s> before every text; `more` words are added to the vocabulary, and `specials`, which no text
    spells.
    """

    def write(
        kind: str,
        name: str = "hub",
        is_opened: bool = False,
        more: int = 0,
        specials: Sequence[str] = (),
        **changes: Any,
    ) -> Path:
        import tokenizers
        import transformers
        from tokenizers import models, pre_tokenizers, processors

        model, config = HUB[kind]
        made = getattr(transformers, model)
        torch.manual_seed(2)
        transformers.utils.logging.disable_progress_bar()
        network = made(made.config_class(**{**config, **changes}))
        for parameter, tensor in network.named_parameters():
            if "embed_positions" not in parameter:  # else they only repeat themselves
                by = 0.1 if tensor.dim() == 1 else 1.0 if len(tensor) == V else 0.5
                tensor.data.add_(torch.randn_like(tensor), alpha=by)
        network.save_pretrained(tmp_path / name)
        entries = [*ENTRIES, "<pad>", *(f"w{i}" for i in range(more))]
        rust = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(entries)}, unk_token="<unk>"))
        rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        rust.add_special_tokens([*specials])
        roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        if is_opened:
            rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
            roles["bos_token"] = "<s>"
        transformers.PreTrainedTokenizerFast(tokenizer_object=rust, **roles).save_pretrained(tmp_path / name)
        return tmp_path / name

    return write
