import json
from pathlib import Path

import pytest

from clearformer.checkpoint import weights_of
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface import gpt2, marian
from clearformer.interop.huggingface.convert import CONVERTERS, import_any
from clearformer.models.gpt import GPT, GPTConfig
from clearformer.models.transformer import Transformer, TransformerConfig


def test_the_converter_is_that_of_the_model_type(tmp_path: Path) -> None:
    lm = GPT(GPTConfig(vocab=5, n_layers=1, d_model=6, d_ff=7, n_heads=3, max_length=11))
    gpt2.export_folder(tmp_path / "lm", lm.config, weights_of(lm))
    assert import_any(tmp_path / "lm")[0].kind == "gpt"
    config = TransformerConfig(
        source_vocab=5, target_vocab=5, n_encoder_layers=1, n_decoder_layers=1, d_model=6, d_ff=7, n_heads=3,
        residual="post", positions={"layout": "halves"},
    )  # fmt: skip
    translator = Transformer(config)
    marian.export_folder(tmp_path / "mt", translator.config, weights_of(translator), pad=0, eos=1, first=0)
    assert import_any(tmp_path / "mt")[0].kind == "transformer"


@pytest.mark.parametrize("name", CONVERTERS)
def test_each_converter_reads_what_it_is_listed_for(tmp_path: Path, name: str) -> None:
    """Its own model type, as far as the first setting that is not there."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    with pytest.raises(CheckpointError, match=r"lacks `(vocab_size|image_size|embedding_size)`"):
        import_any(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"model_type": "mamba"}', r"(?s)type `mamba` are not known.*gpt2, llama, marian"),
        ("{}", "type `None` are not known"),
        ('{"model_type": ["gpt2"]}', "are not known"),
        ("[]", "holds no table of settings"),
        ("{", "cannot be read"),
    ],
)
def test_unknown_types_are_answered_with_those_known(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=reason):
        import_any(tmp_path)
