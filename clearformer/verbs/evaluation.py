"""Score a model on pairs, text, labels, pictures or recordings."""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from clearformer.data.labels import Column, number_classes
from clearformer.data.sources import Columns, read_lines, read_pairs, require_file
from clearformer.data.text import TextSource, store_text
from clearformer.errors import ConfigError, DataError
from clearformer.evaluation.evaluate import evaluate as measure
from clearformer.evaluation.labels import score_pictures
from clearformer.evaluation.metrics.wer import score_speech
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.tagger import Tagger
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.loading.contents import read_recipe
from clearformer.loading.handles import load, load_as
from clearformer.tasks.causal_lm import measure_loss, windows_of
from clearformer.tasks.classification import answers_of
from clearformer.tasks.classification import judge as judge_scores
from clearformer.tasks.speech import written
from clearformer.tasks.translation import plain_reference
from clearformer.text.normalize import clean
from clearformer.verbs.corpora import Corpus, Name, TextColumns, Texts, as_paths
from clearformer.verbs.reading import judge_of


def evaluate(
    model: Name,
    pairs: Corpus,
    refs: Iterable[Name] = (),
    *,
    columns: Columns = (0, 1),
    tokenize: str | None = None,
    lowercase: bool | None = None,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **search: Any,
) -> dict[str, Any]:
    """BLEU and chrF of a model's translations: bleu, chrf, signatures, sentences, translations.

    `refs` are files with a further reference a line. `tokenize` and `lowercase` replace the recipe's [evaluate],
    `search` (beam=1, length_penalty=0.6) its [decode]. `progress(done, total)` is called after every sentence.
    """
    recipe = read_recipe(model)
    examples = list(read_pairs(as_paths(pairs), columns))
    references = [[example.target for example in examples], *(lines_of(Path(path), len(examples)) for path in refs)]
    wanted = {"tokenize": tokenize, "lowercase": lowercase}
    config = recipe.evaluate.changed(**{name: value for name, value in wanted.items() if value is not None})
    n_done = 0

    def count(n: int) -> None:
        nonlocal n_done
        n_done += n
        progress(n_done, len(examples))

    return measure(
        load_as(Translator, model, device),
        [example.source for example in examples],
        [[plain_reference(line, recipe) for line in lines] for lines in references],
        config,
        count,
        **search,
    )


def lines_of(path: Path, n: int) -> list[str]:
    require_file(path)
    lines = [clean(line) for line in read_lines(path)]
    if len(lines) != n:
        raise DataError(f"{path} has {len(lines):,} lines for {n:,} pairs", "give one reference a line, for each pair")
    return lines


def evaluate_text(model: Name, text: Texts, *, device: str = "auto") -> dict[str, Any]:
    """How well a language model foresees text: loss (natural log, a token), perplexity, tokens."""
    writer = load_as(LanguageModel, model, device)
    recipe = read_recipe(model)
    paths = tuple(map(Path, [text] if isinstance(text, str | Path) else text))
    source = TextSource(path=paths) if recipe.data is None else recipe.data.train.changed(path=paths)
    with TemporaryDirectory() as folder:
        joined = getattr(recipe.data, "joined", False)
        store = store_text(source.read(), writer.tokenizer, Path(folder) / "text.safetensors", bos=not joined)
        return measure_loss(writer.model, windows_of(recipe, store), writer.device)


def evaluate_labels(
    model: Name,
    labels: Name,
    *,
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """How often a classifier is right: loss, accuracy, macro_f1, matthews, confusion, classes, examples.

    Of a regression, loss (mean of squares), pearson and examples; of a classifier of words, the examples are words, and
    sentences are counted too. Columns are those of the training, if not given.
    """
    judge = judge_of(model, device)
    if isinstance(judge, ImageClassifier):
        raise ConfigError(f"{model} is a classifier of pictures", "evaluate it on --images")
    names = ("words", "labels") if isinstance(judge, Tagger) else ("text", "label")
    wanted = {"path": Path(labels), names[0]: text_columns, names[1]: label_column}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    examples = list(read_recipe(model).data.train.changed(**wanted).read())
    answers = torch.from_numpy(answers_of(examples, judge.classes, str(labels)))
    if isinstance(judge, Tagger):
        scores = judge_scores(judge.scores([example.words for example in examples]), answers)
        scores["sentences"] = len(examples)
    else:
        pairs = None if examples[0].pair is None else [str(example.pair) for example in examples]
        scores = judge_scores(judge.scores([example.text for example in examples], pairs), answers)
    return scores | ({"classes": judge.classes} if judge.classes else {})


def evaluate_images(model: Name, images: Name, *, device: str = "auto") -> dict[str, Any]:
    """How often a classifier of pictures is right: loss, accuracy, top5, macro_f1, matthews, confusion, classes.

    Of an autoencoder the error, the mean of (x̂ − x)² where pixels have a spread of 1. `images` were judged; others,
    which cannot be read, are named and were `left_out`.
    """
    from clearformer.data.fitting import CHUNK, fit_all
    from clearformer.data.images import ImageSource
    from clearformer.tasks.pictures import tell_broken

    eye, data = load(model, device), read_recipe(model).data
    if not isinstance(eye, ImageClassifier | ImageAutoencoder):
        eye = load_as(ImageClassifier, model, device)
    source = ImageSource(path=Path(images)) if data is None else data.train.changed(path=Path(images))
    broken: list[str] = []
    scores, labels = [], []
    found = fit_all(source.read(), eye.image, broken)
    judge = eye.errors if isinstance(eye, ImageAutoencoder) else eye.scores
    while some := list(islice(found, CHUNK)):
        labels += [one.label for one in some]
        scores.append(judge(np.stack([one.pixels for one in some])))
    tell_broken(broken)
    if not labels:
        raise DataError(f"{images}: none of {len(broken):,} pictures can be read", broken[0])
    if isinstance(eye, ImageAutoencoder):
        return {"error": float(torch.cat(scores).mean()), "images": len(labels), "left_out": len(broken)}
    answers = torch.from_numpy(number_classes(labels, eye.classes, str(images)))
    return score_pictures(torch.cat(scores), answers) | {"classes": eye.classes, "left_out": len(broken)}


def evaluate_speech(model: Name, recordings: Name, *, device: str = "auto") -> dict[str, Any]:
    """How much a model of speech mishears: wer and cer, shares of words and of letters; words, sentences.

    The recordings are a list or a folder as the training's was, each heard by itself.
    """
    transcriber, recipe = load_as(Transcriber, model, device), read_recipe(model)
    alone = {"speaker": None, "join": None, "silence": (0.0, 0.0), "strings": None}
    found = list(recipe.data.train.changed(path=Path(recordings), **alone).read())
    heard = [transcript.text for transcript in transcriber.transcribe([recording.path for recording in found])]
    return score_speech(heard, [written(recording.text, recipe) for recording in found])
