"""card: describe a model in the format of the Hugging Face hub, a README.md with a YAML header.

    clearformer.card("runs/mine", license="apache-2.0", language="en,fr")

Everything is read from the run folder: the recipe, the report of the training and the calibration. What only its author
can know, such as where the data comes from, is left as a question for the author.
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

from clearformer.checkpoint import RunFolder, read_report, write_text
from clearformer.errors import CheckpointError
from clearformer.handles.image_model import ImageModel
from clearformer.loading.folder import find, read_class_names, read_recipe, read_temperature, task_of
from clearformer.recipe import Recipe
from clearformer.verbs.load import load
from clearformer.version import __version__
from clearformer.wording import count, listed

PIPELINES = {  # of the hub, by objective
    "translation": "translation",
    "causal-lm": "text-generation",
    "prefix-lm": "text-generation",
    "masked-lm": "fill-mask",
    "span-corruption": "text2text-generation",
    "classification": "text-classification",
    "token-classification": "token-classification",
    "sentence-score": "text-classification",
    "image-classification": "image-classification",
    "reconstruction": "image-feature-extraction",
    "ctc": "automatic-speech-recognition",
}
INPUTS = {"generate": "Once upon a time", "fill": "The cat ___ on the mat.", "transcribe": "speech.wav"}
SIZES = {  # keys of [model], in words
    "n_layers": "{:,} layers",
    "n_encoder_layers": "{:,} encoder layers",
    "n_decoder_layers": "{:,} decoder layers",
    "d_model": "width {:,}",
    "n_heads": "{:,} heads",
    "d_ff": "feed-forward width {:,}",
    "vocab": "a vocabulary of {:,} tokens",
}
QUESTION = "*To be completed by the author:*"


def card(
    model: str | Path,
    out: str | Path | None = None,
    title: str | None = None,
    license: str | None = None,
    language: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the card of a run folder, by default to its README.md, and return the path.

    `license` is an identifier such as apache-2.0, and `language` a list of codes such as "en,fr". An existing file is
    kept unless `overwrite`.
    """
    folder = find(model)
    path = Path(out) if out is not None else folder / "README.md"
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path} exists", "give another --out, or --overwrite to replace it")
    write_text(path, text_of(folder, title, license, language))
    return path


def text_of(folder: Path, title: str | None, license: str | None, language: str | None) -> str:
    recipe, run, handle = read_recipe(folder), RunFolder(folder), load(folder, "cpu")
    report = read_report(run) if run.report.exists() else {}
    name = title or folder.resolve().name
    parts = [
        header(recipe, report, name, license, language),
        f"# {name}",
        introduction(recipe, folder, handle),
        use(handle, folder.name),
        scores(report),
        data(recipe),
        training(recipe, report),
        limits(recipe),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def header(recipe: Recipe, report: Mapping[str, Any], name: str, license: str | None, language: str | None) -> str:
    """The YAML header that the hub reads. Values are JSON, which is YAML, so that no name can break it."""
    pipeline = PIPELINES.get(recipe.objective.kind, "other")
    lines = ["library_name: clearformer", f"pipeline_tag: {pipeline}", "tags:", "- clearformer"]
    if language is not None:
        lines = ["language:", *(f"- {json.dumps(code.strip())}" for code in language.split(",")), *lines]
    if license is not None:
        lines.insert(0, f"license: {json.dumps(license)}")
    if test := numbers(report.get("test", {})):
        lines += ["model-index:", f"- name: {json.dumps(name, ensure_ascii=False)}", "  results:"]
        lines += ["  - task:", f"      type: {pipeline}", "    dataset:", "      type: custom", "      name: test data"]
        lines += ["    metrics:"]
        lines += [f"    - type: {metric}\n      value: {value:.4g}" for metric, value in test.items()]
    return "\n".join(["---", *lines, "---"])


def introduction(recipe: Recipe, folder: Path, handle: Any) -> str:
    values = ((text, getattr(recipe.model, key, None)) for key, text in SIZES.items())
    sizes = [text.format(value) for text, value in values if isinstance(value, int)]
    sizes.append(count(sum(parameter.numel() for parameter in handle.model.parameters()), "parameter"))
    sentences = [
        f"{handle.kind.capitalize()}: `{recipe.model.kind}` with {listed(sizes)}.",
        f"Made with Clearformer {__version__}.",
    ]
    if recipe.origin is not None:
        sentences.append(f"Its weights were imported from `{recipe.origin.source}` ({recipe.origin.format}).")
    if classes := read_class_names(folder, recipe):
        names = listed([f"`{name}`" for name in classes[:50]])
        sentences.append(f"It has {count(len(classes), 'class', 'classes')}: {names}{', …' * (len(classes) > 50)}.")
    if (temperature := read_temperature(folder)) != 1:
        sentences.append(f"Its probabilities are calibrated (temperature {temperature:.3g}).")
    return " ".join(sentences)


def use(handle: Any, name: str) -> str:
    """The main verb of the model, as a command and in Python."""
    verb = handle.verbs[0] if handle.verbs[0] != "evaluate" else handle.verbs[1]
    example = INPUTS.get(verb, "photo.jpg" if isinstance(handle, ImageModel) else "Where is the station?")
    lines = [
        "## Use",
        "",
        "```bash",
        "pip install clearformer",
        f"clearformer {verb} --model {name} {quote(example)}",
        "```",
    ]
    if hasattr(handle, verb):
        lines += ["", "```python", "import clearformer", "", f"model = clearformer.load({name!r})"]
        lines += [f"model.{verb}([{example!r}])", "```"]
    return "\n".join(lines)


def scores(report: Mapping[str, Any]) -> str:
    """The metrics of the best checkpoint, on validation and test data."""
    splits = {name: numbers(report.get(key, {})) for name, key in (("validation", "valid"), ("test", "test"))}
    metrics = list(dict.fromkeys(metric for values in splits.values() for metric in values))
    if not metrics:
        return ""
    used = [name for name, values in splits.items() if values]
    lines = [f"| metric | {' | '.join(used)} |", "|---" * (len(used) + 1) + "|"]
    for metric in metrics:
        cells = [f"{splits[name][metric]:.4g}" if metric in splits[name] else "–" for name in used]
        lines.append(f"| {metric} | {' | '.join(cells)} |")
    note = "The best checkpoint was chosen on the validation data."
    return "\n".join(["## Scores", "", *lines, "", note if "test" in used else f"{note} There is no test data."])


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The metrics among the entries of a report; whole numbers are counts, such as of sentences."""
    return {name: value for name, value in values.items() if isinstance(value, float) and isfinite(value)}


def data(recipe: Recipe) -> str:
    """The names of the files, without the folders of the author's machine."""
    lines = ["## Data", ""]
    for split in ("train", "valid", "test"):
        source = None if recipe.data is None else getattr(recipe.data, split, None)
        if source is not None and getattr(source, "path", None) is not None:
            paths: Sequence[Path] = source.path if isinstance(source.path, tuple) else (source.path,)
            lines.append(f"- {split}: {listed([f'`{Path(path).name}`' for path in paths])}")
    lines += ["", f"{QUESTION} where does the data come from, what is in it, and who may use it?"]
    return "\n".join(lines)


def training(recipe: Recipe, report: Mapping[str, Any]) -> str:
    train, optim = recipe.train, recipe.optim
    lines = ["## Training", ""]
    if report:
        versions = report.get("versions") or {}
        device = f" on {versions['device']}" if "device" in versions else ""
        lines.append(
            f"{count(report['steps'], 'step')} in {count(round(report['seconds']), 'second')}{device}, "
            f"best at step {report['best_step']:,}; seed {report['seed']}."
        )
    lines.append(
        f"Optimiser {optim.kind}, peak learning rate {optim.lr:g}, schedule {recipe.schedule.kind}; "
        f"{train.tokens:,} {task_of(recipe).unit} per batch. `recipe.toml` has all settings."
    )
    if recipe.tuning is not None:
        lines.append(f"Fine-tuned with the method `{recipe.tuning.method}`.")
    if versions := report.get("versions"):
        lines.append("Versions: " + ", ".join(f"{name} {v}" for name, v in versions.items() if name != "device") + ".")
    return "\n".join(lines)


def limits(recipe: Recipe) -> str:
    lines = ["## Limits", ""]
    if isinstance(longest := getattr(recipe.model, "max_length", None), int):
        lines.append(f"- It reads at most {count(longest, 'token')}.")
    lines.append("- The model knows only what its training data shows. On other kinds of text or images, it is worse,")
    lines.append("  often with high probabilities.")
    lines += ["", f"{QUESTION} what must it not be used for?"]
    return "\n".join(lines)
