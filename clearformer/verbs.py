"""What the command line does, as functions.

    report = clearformer.train(pairs="pairs.tsv", out="runs/mine")
    scores = clearformer.evaluate(report["run"], "test.tsv")

A corpus is one .tsv, .txt or .jsonl file, or two line-aligned files as a tuple. `settings` are "table.key=value", as
--set takes them. Whatever a user can mend raises a ClearformerError.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from clearformer import auto, auto_images, auto_labels, launch
from clearformer.checkpoint import RunFolder
from clearformer.data.labels import Column, named_columns, number_classes
from clearformer.data.sources import Columns, read_lines, read_pairs, require_file
from clearformer.data.tags import is_tagged
from clearformer.data.text import TextSource, store_text
from clearformer.errors import ConfigError, DataError, suggest
from clearformer.evaluation.evaluate import evaluate as measure
from clearformer.evaluation.labels import score_pictures
from clearformer.evaluation.metrics.wer import score_speech
from clearformer.generation import gaps
from clearformer.generation.chat import Chat
from clearformer.generation.language import Continuation, LanguageModel, Score
from clearformer.generation.masked import MaskedModel
from clearformer.generation.reply import Reply
from clearformer.generation.translate import Translator
from clearformer.loading import USES, find, load, load_as, load_encoder, read_recipe
from clearformer.reading.classifier import Classifier, Verdict
from clearformer.reading.coder import Coder
from clearformer.reading.tagger import Tagger
from clearformer.reading.transcriber import Transcriber
from clearformer.reading.viewer import Viewer
from clearformer.recipe import Recipe
from clearformer.tasks.causal_lm import measure_loss, windows_of
from clearformer.tasks.classification import answers_of
from clearformer.tasks.classification import judge as judge_scores
from clearformer.tasks.speech import written
from clearformer.tasks.translation import plain_reference
from clearformer.text.normalize import clean
from clearformer.tuning.methods import SAID, Method

Name = str | Path
Corpus = Name | tuple[Name, Name]
Texts = Name | Sequence[Name]
TextColumns = Column | tuple[Column, Column] | None


def plan(
    recipe: Name | None = None,
    *,
    pairs: Corpus | None = None,
    text: Texts | None = None,
    labels: Name | None = None,
    images: Name | None = None,
    valid: Corpus | Texts | None = None,
    test: Corpus | Texts | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    model: str | None = None,
    settings: Sequence[str] = (),
    device: str = "auto",
) -> Recipe:
    """The recipe of a training: read from a file, or chosen from the data. Corpora are read, nothing is written."""
    known = {"pairs": pairs, "text": text, "labels": labels, "images": images}
    given = [name for name, value in known.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(
            f"both {' and '.join(given)} are given",
            "train a translator on --pairs, a language model on --text, a classifier on --labels or --images",
        )
    splits = (("train", pairs or text or labels or images), ("valid", valid), ("test", test))
    corpora: dict[str, Any] = {split: corpus for split, corpus in splits if corpus}
    if recipe is not None and corpora:
        raise ConfigError(
            f"both a recipe, {recipe}, and {'text is' if text is not None else f'{given[0]} are'} given"
            if given
            else f"a recipe, {recipe}, and other data are given",
            "a recipe says where its data is; two aligned files are joined by a comma: --pairs train.en,train.de",
        )
    if recipe is not None:
        chosen = [f"model.{auto.model_key(model)}={model}"] if model else []
        return Recipe.read(Path(recipe), [*chosen, *settings])
    if text is not None:
        paths = {split: [corpus] if isinstance(corpus, str | Path) else corpus for split, corpus in corpora.items()}
        files = {split: {"path": tuple(map(Path, corpus))} for split, corpus in paths.items()}
        return auto.plan_text(files, model, settings, device)
    if labels is not None:
        return auto_labels.plan_labels(labelled(corpora, text_columns, label_column), model, settings, device)
    if images is not None:
        return auto_images.plan_images(pictured(corpora), model, settings, device)
    if pairs is None:
        raise ConfigError(
            "there is nothing to train on",
            "give a recipe, --pairs train.tsv, --text book.txt, --labels reviews.tsv or --images folder",
        )
    return auto.plan(sources_of(corpora, columns), model, settings, device)


def train(
    recipe: Name | Recipe | None = None,
    *,
    pairs: Corpus | None = None,
    text: Texts | None = None,
    labels: Name | None = None,
    images: Name | None = None,
    valid: Corpus | Texts | None = None,
    test: Corpus | Texts | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    model: str | None = None,
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Train into a run folder, runs/<data>-<model>-<time> unless given, and return its report with the folder as `run`.

    To resume, `out` is enough: the folder holds its recipe. Processes of a distributed training other than the first
    return an empty report.
    """
    if resume:
        corpora = {"pairs": pairs, "text": text, "labels": labels, "images": images}
        refuse_with_resume(recipe=recipe, **corpora, valid=valid, test=test, model=model)
        chosen = saved_recipe(out, settings)
    elif isinstance(recipe, Recipe):
        chosen = recipe
    else:
        chosen = plan(
            recipe,
            pairs=pairs,
            text=text,
            labels=labels,
            images=images,
            valid=valid,
            test=test,
            columns=columns,
            text_columns=text_columns,
            label_column=label_column,
            model=model,
            settings=settings,
            device=device,
        )
    return run(chosen, Path(out) if out else default_folder(chosen), resume, device)


def finetune(
    model: Name,
    pairs: Corpus | None = None,
    *,
    labels: Name | None = None,
    images: Name | None = None,
    method: Method = "full",
    valid: Corpus | None = None,
    test: Corpus | None = None,
    columns: Columns = (0, 1),
    text_columns: TextColumns = None,
    label_column: Column | None = None,
    out: Name | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Go on from a trained model, with its own vocabulary and a gentler rate; reports as `train` does.

    A translator learns from other pairs; a classifier is made from labels, or of other images. The method says what
    learns: "full", "lora", "prefix" or "head". All but the first save what they learnt by itself, and need `model` ever
    after.
    """
    start = find(model)
    if sum(given is not None for given in (pairs, labels, images)) != 1:
        raise ConfigError(
            "there must be either pairs or labels or images",
            "give --pairs more.tsv, --labels reviews.tsv or --images folder",
        )
    if method not in SAID:
        raise ConfigError(f"there is no method `{method}`", suggest(method, SAID))
    splits = (("train", pairs or labels or images), ("valid", valid), ("test", test))
    corpora: dict[str, Any] = {split: corpus for split, corpus in splits if corpus}
    if resume:
        refuse_with_resume(valid=valid, test=test)
        chosen = saved_recipe(out, settings)
    elif labels is not None:
        sources = labelled(corpora, text_columns, label_column)
        chosen = auto_labels.plan_finetune_labels(start, sources, method, settings, device)
    elif images is not None:
        chosen = auto_images.plan_finetune_images(start, pictured(corpora), method, settings, device)
    else:
        chosen = auto.plan_finetune(start, sources_of(corpora, columns), settings, device, method)
    return run(
        chosen,
        Path(out) if out else default_folder(chosen, start.name),
        resume,
        device,
        None if chosen.tuning else start,
    )


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
    if isinstance(judge, Viewer):
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
    if not isinstance(eye, Viewer | Coder):
        eye = load_as(Viewer, model, device)
    source = ImageSource(path=Path(images)) if data is None else data.train.changed(path=Path(images))
    broken: list[str] = []
    scores, labels = [], []
    found = fit_all(source.read(), eye.image, broken)
    judge = eye.errors if isinstance(eye, Coder) else eye.scores
    while some := list(islice(found, CHUNK)):
        labels += [one.label for one in some]
        scores.append(judge(np.stack([one.pixels for one in some])))
    tell_broken(broken)
    if not labels:
        raise DataError(f"{images}: none of {len(broken):,} pictures can be read", broken[0])
    if isinstance(eye, Coder):
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


def transcribe(model: Name, sounds: Sequence[Name], *, device: str = "cpu") -> list[dict[str, Any]]:
    """What is said in each WAV file: path, text, and as `words` each word with the seconds where it starts and ends."""
    told = load_as(Transcriber, model, device).transcribe(sounds)
    return [{"path": str(path), **asdict(transcript)} for path, transcript in zip(sounds, told)]


def classify(
    model: Name, texts: Sequence[str], pairs: Sequence[str] | None = None, *, top: int = 1, device: str = "cpu"
) -> list[dict[str, Any]]:
    """What a classifier says of each text, or of each with its pair: text, label, probability, and the `top` likeliest.

    Of a regression: text, value. Where words are judged: text, and as `words`, which spaces divide, the same of each.
    To a classifier of pictures the texts are files: image, label, probability, and the `top` likeliest.
    """
    return verdicts(judge_of(model, device), texts, pairs, top)


def judge_of(model: Name, device: str) -> Classifier | Tagger | Viewer:
    """A classifier of texts, of words or of pictures."""
    found = load(model, device)
    return found if isinstance(found, Classifier | Tagger | Viewer) else load_as(Classifier, model, device)


def verdicts(
    judge: Classifier | Tagger | Viewer, texts: Sequence[str], pairs: Sequence[str] | None, top: int
) -> list[dict[str, Any]]:
    def told(found: list[Verdict]) -> dict[str, Any]:
        return asdict(found[0]) | {"top": [asdict(one) for one in found[:top]]}

    if isinstance(judge, Viewer):
        if pairs is not None:
            raise DataError(f"{judge.name} judges pictures, not pairs of texts", "give files alone")
        return [{"image": str(name), **told(found)} for name, found in zip(texts, judge.classify(texts))]
    if isinstance(judge, Tagger):
        if pairs is not None:
            raise DataError(f"{judge.name} judges words, not pairs of texts", "give the texts alone")
        divided = [clean(text).split() for text in texts]
        said: list[list[dict[str, Any]]] = (
            [[told(one) for one in row] for row in judge.tag(divided)]
            if judge.classes
            else [[{"value": value} for value in row] for row in judge.values(divided)]
        )
        return [
            {"text": text, "words": [{"word": word, **one} for word, one in zip(words, row)]}
            for text, words, row in zip(texts, divided, said)
        ]
    named: list[dict[str, Any]] = [{"text": text} for text in texts]
    for row, pair in zip(named, pairs or []):
        row["pair"] = pair
    if not judge.classes:
        return [row | {"value": value} for row, value in zip(named, judge.values(texts, pairs))]
    return [row | told(found) for row, found in zip(named, judge.classify(texts, pairs))]


def embed(model: Name, texts: Sequence[str], *, unit: bool | None = None, device: str = "cpu") -> np.ndarray:
    """The vector of each text (N, D): the mean over its tokens, of length 1 where the model is a sentence encoder.

    `unit` decides instead of the model's own files. To a network for pictures the texts are files, and their vectors
    what its head reads: of an autoencoder, codes.
    """
    encoder = load_encoder(model, device, unit)
    vectors: np.ndarray = encoder.embed(texts).numpy()
    return vectors


def generate(
    model: Name, prompts: Sequence[str], *, chat: bool = False, device: str = "cpu", **settings: Any
) -> list[list[Continuation]]:
    """Continuations of each prompt by a language model, or answers: with `chat`, or of an encoder–decoder such as T5.

    The settings are those of `LanguageModel.generate`.
    """
    return writer(model, chat, device).generate(prompts, **settings)


def writer(model: Name, chat: bool = False, device: str = "cpu") -> LanguageModel:
    """A model that writes; of any other kind, `load_as` says what it is instead."""
    found = load(model, device)
    if isinstance(found, Translator) and not chat:
        return Reply(found)
    found = found if isinstance(found, LanguageModel) else load_as(LanguageModel, model, device)
    return Chat(found) if chat else found


def score(
    model: Name, texts: Sequence[str], *, source: str | None = None, closed: bool | None = None, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Texts ranked by how likely a model finds them: text, logprob, tokens, perplexity, the likeliest first.

    A language model judges them by themselves, a translator as translations of `source`, their ends always counted. A
    masked model gives pseudo-log-likelihoods (generation/masked.py): to be compared with one another alone; a
    scorer of sentences the log-probability that nothing is wrong with a text.
    """
    judge = load(model, device)
    if isinstance(judge, Classifier | Tagger | Viewer | Coder | Transcriber):
        is_one, uses = USES[type(judge)]
        raise ConfigError(f"{model} is {is_one}, which finds no text likely", f"with it you can: {uses}")
    if isinstance(judge, Translator):
        if source is None:
            raise ConfigError(f"{model} is a translator", "say what the texts translate, with --source")
        logprobs = judge.score([source] * len(texts), texts)
        counts = [len(ids) + 1 for ids in judge.target_tokenizer.encode(texts)]
        scores = [Score(*row) for row in zip(texts, logprobs, counts)]
    else:
        if source is not None:
            raise ConfigError(f"{model} is no translator", "leave --source out")
        scores = judge.score(texts, closed)
    rows = [{**asdict(row), "perplexity": row.perplexity} for row in scores]
    return sorted(rows, key=lambda row: -row["logprob"])


def fill(
    model: Name, text: str, n: int = 5, candidates: Sequence[str] | None = None, *, device: str = "cpu"
) -> list[dict[str, Any]]:
    """The best words for the gap ___ of a text: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.fill(filler(model, device), text, n, candidates)]


def repair(model: Name, text: str, n: int = 5, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The best ways to add the word that a sentence lacks: text, word, position, logprob, share."""
    return [asdict(row) for row in gaps.repair(filler(model, device), text, n)]


def filler(model: Name, device: str) -> LanguageModel | MaskedModel:
    """A model that knows which words go together; of any other kind, `load_as` says what it is instead."""
    found = load(model, device)
    return found if isinstance(found, LanguageModel | MaskedModel) else load_as(LanguageModel, model, device)


def lines_of(path: Path, n: int) -> list[str]:
    require_file(path)
    lines = [clean(line) for line in read_lines(path)]
    if len(lines) != n:
        raise DataError(f"{path} has {len(lines):,} lines for {n:,} pairs", "give one reference a line, for each pair")
    return lines


def as_paths(corpus: Corpus) -> Path | tuple[Path, Path]:
    return (Path(corpus[0]), Path(corpus[1])) if isinstance(corpus, tuple) else Path(corpus)


def sources_of(corpora: dict[str, Corpus], columns: Columns) -> dict[str, dict[str, Any]]:
    """Corpora by split as the [data] table of a recipe writes them."""
    return {split: {"path": as_paths(corpus), "columns": columns} for split, corpus in corpora.items()}


def pictured(corpora: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Pictures by split, likewise."""
    return {split: {"path": Path(path)} for split, path in corpora.items()}


def labelled(corpora: dict[str, Any], text: TextColumns, label: Column | None) -> dict[str, dict[str, Any]]:
    """Labelled files by split, likewise. Where no columns are given, a header that names them is believed."""
    names = ("words", "labels") if is_tagged(Path(corpora["train"])) else ("text", "label")
    given = {key: value for key, value in zip(names, (text, label)) if value is not None}
    return {split: {"path": Path(path), **(given or named_columns(Path(path)))} for split, path in corpora.items()}


def refuse_with_resume(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"a training is resumed as it is: --{name} cannot be given anew", "give --resume and --out alone"
            )


def saved_recipe(out: Name | None, settings: Sequence[str]) -> Recipe:
    if out is None:
        raise ConfigError("--resume needs --out", "name the run folder to go on with")
    run = RunFolder(Path(out))
    run.require()
    return Recipe.read(run.recipe, settings)


def run(recipe: Recipe, folder: Path, resume: bool, device: str, start: Path | None = None) -> dict[str, Any]:
    if recipe.data is None:
        raise ConfigError(
            "there is nothing to train on: the recipe is that of an imported model, without [data]",
            "go on from it with data of yours: clearformer finetune --model FOLDER --pairs more.tsv",
        )
    if not resume:
        probe(recipe)
    report = launch.train(recipe, folder, resume, device, start)
    return {"run": str(folder), **report} if report else {}


def probe(recipe: Recipe) -> None:
    """Read a pair of each corpus now: a missing test set should not be found out after a day of training."""
    for split in ("train", "valid", "test"):
        if (source := recipe.data.source(split)) is not None:
            next(source.read())


def default_folder(recipe: Recipe, model: str | None = None) -> Path:
    """runs/<data>-<model>-<time>"""
    path = recipe.data.train.path
    data = (path[0] if isinstance(path, tuple) else path).resolve().name.split(".")[0]
    size = model or recipe.model.preset or recipe.model.kind
    return Path("runs") / f"{data}-{size}-{time.strftime('%Y%m%d-%H%M%S')}"
