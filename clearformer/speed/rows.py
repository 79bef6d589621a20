"""The rows of the table: each is a piece of work, our side of it, and the peers that a user would pick instead.

A call is the name of a function in here.py or peers/, with the options of both sides. `device` is where a row runs:
"cuda" needs a GPU, "cpu" uses none, "any" takes the GPU if there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any, Literal

from clearformer.errors import ConfigError, suggest

TOKENS, SECONDS, PER_MILLION = "tokens/s", "s", "s per million pairs"
HERE = "clearformer.speed.here"
PEERS = "clearformer.speed.peers"
DEMO = str(files("clearformer") / "bundled" / "demo.toml")

WORDS = "text.kind=word text.whitespace=collapse text.min_frequency=1 data.joined=true"
GPT_SETTINGS = f"""{WORDS} text.vocab_size=50304 data.length=1024
    model.dropout=0 model.attention_dropout=0 model.bias=false
    optim.kind=adamw optim.lr=6e-4 optim.betas=[0.9,0.95] optim.weight_decay=0.1
    schedule.kind=constant schedule.warmup=100
    train.tokens=32768 train.steps=100000 train.ema=0 train.clip=1"""
LSTM_SETTINGS = f"""{WORDS} text.vocab_size=10002 data.length=20 data.train.documents=line
    optim.kind=sgd optim.lr=20 optim.weight_decay=0 schedule.kind=constant schedule.warmup=0
    train.tokens=400 train.clip=0.25 train.ema=0 train.precision=float32 train.steps=30000"""


@dataclass(frozen=True)
class Engine:
    """One side of a row. `packages` must be installed; with `needs_checkout`, a checkout of nanoGPT must be given."""

    name: str
    title: str
    call: str
    options: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    needs_checkout: bool = False
    is_slow: bool = False
    """Whether --quick leaves it out, because it compiles for a minute or more."""


@dataclass(frozen=True)
class Row:
    """A piece of work. Engines that are measured `by_threads` run with one thread and with all; the better counts."""

    name: str
    work: str
    device: Literal["cuda", "cpu", "any"]
    here: Engine
    peers: tuple[Engine, ...] = ()
    unit: str = TOKENS
    by_threads: bool = False

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self.here, *self.peers


def ours(function: str, **options: Any) -> Engine:
    return Engine("here", "clearformer", f"{HERE}:{function}", options)


def decoding(name: str, work: str, device: Literal["cuda", "cpu"], engine: str = "auto", **options: Any) -> Row:
    """A row of `translate`: the same weights, sources and lengths on every side.

    An `engine` other than "auto" is also compared with our plain decoder.
    """
    peers = [
        Engine("huggingface", "Hugging Face", f"{PEERS}.huggingface:translate", options, ("transformers",)),
    ]
    if engine != "auto":
        title = "clearformer, engine torch"
        peers.insert(0, Engine("plain", title, f"{HERE}:translate", {**options, "engine": "torch"}))
    if device == "cpu":
        peers += [ctranslate2(precision, options) for precision in ("float32", "int8")]
    here = ours("translate", engine=engine, **options)
    return Row(name, work, device, here, tuple(peers), by_threads=device == "cpu")


def ctranslate2(precision: str, options: Mapping[str, Any]) -> Engine:
    settings, packages = {**options, "precision": precision}, ("ctranslate2", "transformers")
    title = f"CTranslate2 {precision}"
    return Engine(f"ctranslate2-{precision}", title, f"{PEERS}.ct2:translate", settings, packages)


def decoding_int8(name: str, work: str, **options: Any) -> Row:
    """A row of `translate --precision int8` on the CPU, beside our float32 and the int8 of CTranslate2."""
    plain = Engine("float32", "clearformer, float32", f"{HERE}:translate", options)
    here = ours("translate", precision="int8", **options)
    return Row(name, work, "cpu", here, (plain, ctranslate2("int8", options)), by_threads=True)


def generating(batch: int) -> Row:
    options = {"size": "gpt2", "batch": batch, "prompt": 32, "length": 128, "precision": "bfloat16"}
    peer = Engine("huggingface", "Hugging Face", f"{PEERS}.huggingface:generate", options, ("transformers",))
    work = f"generate with GPT-2 124M, greedy, batch {batch}, bfloat16"
    return Row(f"decode-gpt2-{batch}", work, "cuda", ours("generate", **options), (peer,))


def marian() -> tuple[Engine, ...]:
    call = f"{PEERS}.huggingface:train_marian"
    return (
        Engine("marian", "Hugging Face Marian, eager", call, {}, ("transformers",)),
        Engine(
            "marian-compiled",
            "Hugging Face Marian, compiled",
            call,
            {"is_compiled": True},
            ("transformers",),
            is_slow=True,
        ),
    )


def gpu_training() -> list[Row]:
    tiny = {"corpus": "small_pairs", "words": ["--pairs", "{corpus}"]}
    base = {"corpus": "large_pairs", "words": ["--pairs", "{corpus}", "--model", "transformer-base"]}
    gpt = {
        "corpus": "random_text",
        "corpus_options": {"vocab": 60_000, "n_words": 3_500_000},
        "words": ["--text", "{corpus}", "--model", "gpt2"],
        "settings": GPT_SETTINGS.split(),
        "log_every": 5,
        "steps": 60,
    }
    curve = {"lr": 6e-4, "warmup": 100, "steps": 60}
    nanogpt = Engine("nanogpt", "nanoGPT, compiled", f"{PEERS}.nanogpt:train", curve, needs_checkout=True)
    return [
        Row(
            "train-tiny",
            "train transformer-tiny on pairs, zero configuration (4,096 tokens per step)",
            "cuda",
            ours("train", **tiny, settings=[]),
            marian(),
        ),
        Row(
            "train-tiny-8k",
            "train transformer-tiny on pairs, 8,192 tokens per step",
            "cuda",
            ours("train", **tiny, settings=["train.tokens=8192"]),
            marian(),
        ),
        Row(
            "train-base",
            "train transformer-base on pairs, 16,384 tokens per step",
            "cuda",
            ours("train", **base, settings=["train.tokens=16384"], log_every=10),
            marian(),
        ),
        Row("train-gpt2", "train GPT-2 124M, 32 × 1024 tokens per step", "cuda", ours("train", **gpt), (nanogpt,)),
    ]


def gpu_decoding() -> list[Row]:
    rows = [
        decoding(
            f"decode-base-{name}-{batch}",
            f"translate with transformer-base, {search}, batch {batch}, bfloat16",
            "cuda",
            size="transformer-base",
            batch=batch,
            beam=beam,
            length=32,
            precision="bfloat16",
        )
        for name, search, beam in (("greedy", "greedy", 1), ("beam4", "beam 4", 4))
        for batch in (1, 64, 512)
    ]
    return [*rows, generating(1), generating(64)]


def cpu_rows() -> list[Row]:
    tiny = {"corpus": "small_pairs", "words": ["--pairs", "{corpus}"], "settings": [], "log_every": 20}
    demo = {"corpus": "demo_pairs", "words": [DEMO, "--set", "data.root={corpus}"], "settings": [], "log_every": 40}
    plain = Engine("nn-transformer", "nn.Transformer loop", f"{PEERS}.plain:train_transformer")
    small: dict[str, Any] = {"size": "transformer-tiny", "batch": 1, "beam": 1, "length": 24, "engine": "compiled"}
    large: dict[str, Any] = {"size": "transformer-base", "batch": 32, "beam": 4, "length": 24}
    return [
        decoding("cpu-decode-tiny", "translate with transformer-tiny, greedy, batch 1, compiled", "cpu", **small),
        decoding("cpu-decode-base", "translate with transformer-base, beam 4, batch 32", "cpu", **large),
        decoding_int8("cpu-decode-int8", "translate with transformer-base, beam 4, batch 32, int8", **large),
        Row("cpu-train-demo", "train the model of the demo", "cpu", ours("train", **demo), (plain,)),
        Row("cpu-train-tiny", "train transformer-tiny, zero configuration", "cpu", ours("train", **tiny), (plain,)),
    ]


def other_rows() -> list[Row]:
    lstm = {
        "corpus": "treebank",
        "words": ["--text", "{corpus}", "--model", "lstm-ptb-small"],
        "settings": LSTM_SETTINGS.split(),
        "n_batches": 1000,
    }
    plain = Engine("nn-lstm", "nn.LSTM loop", f"{PEERS}.plain:train_lstm")
    torch = Engine("import-torch", "python -c 'import torch'", f"{PEERS}.plain:import_torch")
    return [
        Row("train-lstm", "train the small LSTM of the Penn Treebank", "any", ours("train", **lstm), (plain,)),
        Row(
            "translate-cold",
            "clearformer translate, a sentence, cold",
            "cpu",
            ours("translate_cold"),
            (torch,),
            SECONDS,
        ),
        Row("prepare-pairs", "prepare pairs", "any", ours("prepare", n=1_000_000, n_quick=100_000), unit=PER_MILLION),
    ]


ROWS = (*gpu_training(), *gpu_decoding(), *cpu_rows(), *other_rows())


def chosen(only: Sequence[str], has_gpu: bool) -> list[Row]:
    """The rows with these names or patterns such as `decode-*`; without any, the rows for this machine.

    On a machine with a GPU these are all but the CPU rows, and on others all, of which the GPU rows are then skipped.
    """
    if not only:
        return [row for row in ROWS if not (has_gpu and row.name.startswith("cpu-"))]
    names = [row.name for row in ROWS]
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"--only {pattern}: there is no such row", suggest(pattern, names))
    return [row for row in ROWS if any(fnmatchcase(row.name, pattern) for pattern in only)]
