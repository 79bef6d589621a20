"""What a command imports before it answers: a user waits for every module."""

import json
import subprocess
import sys

import pytest

from clearformer.cli import VERBS

# what the script that pip installs as `clearformer` runs, and the modules that it has imported at its end
SCRIPT = """
import atexit, gc, json, sys
atexit.register(lambda: print(json.dumps([*sorted(sys.modules), gc.get_freeze_count()]), file=sys.stderr))
from clearformer.cli import main
sys.exit(main())
"""
LARGE = {"torch", "numpy", "tokenizers", "safetensors", "sacrebleu", "rich", "matplotlib"}


def modules_after(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    *modules, n_frozen = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
    assert n_frozen > 1000  # Python does not look for cycles among them when it ends
    return set(modules)


@pytest.fixture(scope="module")
def modules() -> set[str]:
    """The modules of `clearformer translate` with the bundled model."""
    return modules_after("translate", "--model", "en-fr-small", "The cat sleeps.")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["translate", "--help"]])
def test_help_imports_no_large_library(arguments: list[str]) -> None:
    assert not LARGE & modules_after(*arguments)


def test_translating_imports_what_it_needs(modules: set[str]) -> None:
    """Without this, a list of modules that is empty would make every rule hold."""
    assert {"torch", "tokenizers", "clearformer.models.transformer", "clearformer.cli.translate"} <= modules


def test_translating_imports_one_verb(modules: set[str]) -> None:
    verbs = {f"clearformer.cli.{verb}" for verb in (*VERBS, "import_")}
    assert modules & verbs == {"clearformer.cli.translate"}


def test_translating_imports_one_architecture_and_no_converter(modules: set[str]) -> None:
    kinds = ("alexnet", "bert", "gpt", "resnet", "rnn", "seq2seq", "speech_rnn", "t5", "vgg", "vit")
    converters = ("bert", "gpt2", "llama", "marian", "openai_gpt", "resnet", "roberta", "t5", "vit")
    assert not modules & {f"clearformer.models.{kind}" for kind in kinds}
    assert not modules & {f"clearformer.interop.huggingface.{name}" for name in converters}


def test_translating_leaves_out_what_only_training_and_evaluation_need(modules: set[str]) -> None:
    assert not modules & {"rich", "sacrebleu", "lxml", "matplotlib", "PIL", "pyarrow", "transformers", "tensorboard"}


def test_translating_adds_no_compiler_to_torch(modules: set[str]) -> None:
    code = "import json, sys, torch; print(json.dumps(list(sys.modules)))"
    plain = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    added = {".".join(name.split(".")[:2]) for name in modules - set(plain) if name.startswith("torch.")}
    assert not added & {"torch._dynamo", "torch._inductor", "torch.distributed", "torch.onnx", "torch.export"}
