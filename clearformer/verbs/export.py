"""export: write a model as a Hugging Face folder, for ONNX runtimes, for CTranslate2, or as torchvision weights."""

from pathlib import Path
from typing import Any

from clearformer.checkpoint import save_tensors, weights_of, write_text
from clearformer.errors import CheckpointError, ConfigError, suggest
from clearformer.interop.ctranslate2_folder import export_ctranslate2
from clearformer.interop.huggingface.convert import converter_for, export_any, export_image_classifier
from clearformer.interop.huggingface.folder import TEMPLATE
from clearformer.interop.huggingface.vocabulary import write_tokenizer
from clearformer.interop.onnx.convert import export_onnx
from clearformer.interop.pixels import write_image
from clearformer.interop.torchvision import convert as torchvision
from clearformer.loading.folder import task_of
from clearformer.loading.open import open_model
from clearformer.loading.write import new_folder, require_empty
from clearformer.tasks.task import Pretrained

FORMATS = ("huggingface", "onnx", "ctranslate2", "torchvision")


def export_model(model: str | Path, out: str | Path, format: str = "huggingface") -> dict[str, Any]:
    """Write a folder for `from_pretrained`, `AutoTokenizer` and `AutoImageProcessor`.

    The format "onnx" writes model.onnx, with greedy search inside for models that generate text, and model.json, which
    describes it. The format "ctranslate2" writes a folder for the Translator or Generator of CTranslate2. The format
    "torchvision" writes the weights with the names of torchvision, as safetensors and never as a pickle.
    Returns a dictionary with folder and model_type.
    """
    out = Path(out)
    if format not in FORMATS:
        raise ConfigError(f"there is no export format `{format}`", suggest(format, FORMATS))
    require_empty(out)
    with new_folder(out) as draft:
        model_type = write_model(open_model(model), draft, format)
    return {"folder": str(out), "model_type": model_type}


def write_model(opened: Pretrained, out: Path, format: str) -> str:
    """Write the folder of a model in one of the formats, and return the type of the model there."""
    if format == "onnx":
        return export_onnx(opened, out)
    if opened.recipe.tuning is not None and opened.recipe.tuning.method == "prefix":
        raise CheckpointError(
            f"{opened.name} was trained by prefix tuning, but other libraries have no model with a prefix",
            "export it with --format onnx",
        )
    if format == "ctranslate2":
        return export_ctranslate2(opened, out)
    if format == "torchvision":
        save_tensors(out / "model.safetensors", torchvision.export_weights(weights_of(opened.network), opened.config))
        return str(opened.config.kind)
    if task_of(opened.recipe).n_tokenizers == 0:
        return export_image_model(opened, out)
    return export_text_model(opened, out)


def export_image_model(opened: Pretrained, out: Path) -> str:
    """Write the weights, the class names and the image processor."""
    converter_for(opened.config)  # raises for an autoencoder, before anything is written
    model_type = export_image_classifier(out, opened.config, weights_of(opened.network), opened.classes or [])
    if opened.recipe.image is not None:
        write_image(out, opened.recipe.image)
    return model_type


def export_text_model(opened: Pretrained, out: Path) -> str:
    """Write the weights, the tokenizer, and the chat template if there is one."""
    tokenizer = opened.target_tokenizer
    if opened.source_tokenizer.fingerprint() != tokenizer.fingerprint():
        raise CheckpointError(
            f"{opened.name} has separate source and target vocabularies, but tokenizer.json holds only one",
            "train with one vocabulary for both languages: --set text.shared=true",
        )
    ids = {"pad": tokenizer.pad_id, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id}
    model_type = export_any(out, opened.config, weights_of(opened.network), ids, opened.classes or [])
    write_tokenizer(out, tokenizer, opened.config, len(opened.tokenizers) == 2)
    if opened.template is not None:
        write_text(out / TEMPLATE, opened.template)
    return model_type
