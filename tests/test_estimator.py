"""A classifier for scikit-learn: its tools take it, and it trains as the command does."""

import copy
import gc
import gzip
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import clearformer
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.estimator import TextClassifier, as_texts, class_names, held_out, split_examples
from clearformer.recipe import Recipe

GOOD, BAD, ABOUT = ("good", "great", "fine", "nice"), ("bad", "awful", "poor", "dull"), ("dogs", "cats", "love", "war")
TEXTS = [f"a {word} film about {topic}" for words in (GOOD, BAD) for word in words for topic in ABOUT]
LABELS = ["pos"] * 16 + ["neg"] * 16
POLARITY = Path(__file__).parents[2] / "shared" / "data" / "rt-polarity"


@pytest.fixture(scope="module")
def fitted() -> TextClassifier:
    return TextClassifier(steps=30, seed=1, device="cpu").fit(TEXTS, LABELS)


def test_a_fitted_classifier_knows_what_it_learned(fitted: TextClassifier) -> None:
    assert fitted.classes_.tolist() == ["neg", "pos"]
    assert fitted.score(TEXTS, LABELS) == 1
    assert fitted.predict(["a good film", "a bad film"]).tolist() == ["pos", "neg"]
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (32, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-12)
    assert (probabilities.argmax(1) == [1] * 16 + [0] * 16).all()
    best = fitted.handle_.classify("a good film")[0]
    assert (best.label, best.probability) == ("pos", pytest.approx(fitted.predict_proba(["a good film"])[0, 1]))
    assert fitted.report_["steps"] == 30
    assert fitted.predict([]).shape == (0,)


def test_it_trains_as_the_command_does(fitted: TextClassifier, tmp_path: Path) -> None:
    for name, rows in split_examples(TEXTS, LABELS, 0.1, 1)._asdict().items():
        (tmp_path / f"{name}.tsv").write_text("".join(f"{row['text']}\t{row['label']}\n" for row in rows))
    settings = ["train.seed=1", "train.steps=30"]
    options = {"out": tmp_path / "run", "settings": settings, "device": "cpu"}
    report = clearformer.train(labels=tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", **options)
    assert report["valid"] == fitted.report_["valid"]
    assert (clearformer.load(tmp_path / "run").logits(TEXTS) == fitted.handle_.logits(TEXTS)).all()


def test_columns_follow_the_classes_and_labels_keep_their_type() -> None:
    """As strings, 10 comes before 9."""
    labels = np.array([9] * 16 + [10] * 16)
    classifier = TextClassifier(steps=30, seed=1).fit(np.array(TEXTS), labels)
    assert classifier.classes_.tolist() == [9, 10]
    assert classifier.handle_.classes == ["10", "9"]
    assert classifier.predict(pandas.Series(TEXTS)).dtype == labels.dtype
    assert classifier.score(pandas.Series(TEXTS), pandas.Series(labels)) == 1
    assert classifier.predict_proba(["a good film"])[0].argmax() == 0
    classifier.fit(TEXTS, [True] * 16 + [False] * 16)
    assert classifier.predict(["a good film"]).tolist() == [True]


# --- scikit-learn


def test_scikit_learn_clones_it(fitted: TextClassifier) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "handle_")
    assert is_classifier(fitted)
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(copied)


def test_it_works_in_a_pipeline() -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("classify", TextClassifier(steps=30, seed=1))])
    pipeline.fit([text.upper() for text in TEXTS], LABELS)
    assert pipeline.predict(["A GOOD FILM"]).tolist() == ["pos"]
    assert pipeline.predict_proba(["A GOOD FILM"]).shape == (1, 2)
    assert pipeline.classes_.tolist() == ["neg", "pos"]
    assert "TextClassifier" in pipeline._repr_html_()


def test_it_is_cross_validated() -> None:
    """The folds of a classifier are stratified: of 32 texts, 16 are held out, 8 of each class."""
    order = np.random.default_rng(0).permutation(32)
    texts, labels = [TEXTS[i] for i in order], [LABELS[i] for i in order]
    scores = cross_val_score(TextClassifier(steps=30), texts, labels, cv=2)
    assert scores.shape == (2,)
    assert (scores * 16 % 1 == 0).all()
    probabilities = cross_val_predict(TextClassifier(steps=2), texts, labels, cv=2, method="predict_proba")
    assert probabilities.shape == (32, 2)


@pytest.mark.slow
def test_a_search_finds_the_better_setting() -> None:
    texts, labels = TEXTS * 2, LABELS * 2
    grid = {"textclassifier__steps": [1, 40]}
    search = GridSearchCV(make_pipeline(TextClassifier(seed=1)), grid, cv=2, n_jobs=1, error_score="raise")
    search.fit(texts, labels)
    assert search.best_params_ == {"textclassifier__steps": 40}
    assert search.score(texts, labels) == 1
    assert search.predict(["a bad film"]).tolist() == ["neg"]


def test_parameters_are_read_and_changed(fitted: TextClassifier) -> None:
    classifier = TextClassifier(steps=200)
    assert classifier.set_params(steps=3, seed=7) is classifier
    assert (classifier.get_params()["steps"], classifier.seed) == (3, 7)
    assert repr(classifier) == "TextClassifier(steps=3, seed=7)"
    assert "<td" in classifier._repr_html_()
    assert "2 classes: neg and pos" in fitted._repr_html_()
    with pytest.raises(ConfigError, match="no parameter `step`\nhint: did you mean `steps`"):
        classifier.set_params(step=3)
    with pytest.raises(ConfigError, match="not fitted yet\nhint: call fit"):
        classifier.predict(TEXTS)


def test_choices_and_settings_reach_the_recipe(tmp_path: Path) -> None:
    """Searches give NumPy numbers, which TOML does not know."""
    choices: dict[str, Any] = {"steps": np.int64(3), "lr": np.float64(0.25), "batch_size": 512, "seed": np.int64(7)}
    TextClassifier(**choices, settings={"model.dropout": 0.125}, out=tmp_path / "run").fit(TEXTS, LABELS)
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert (recipe.train.steps, recipe.optim.lr, recipe.train.tokens, recipe.train.seed) == (3, 0.25, 512, 7)
    assert recipe.model.dropout == 0.125
    with pytest.raises(ConfigError, match="cannot be combined"):
        TextClassifier(steps=3, epochs=2).fit(TEXTS, LABELS)


def test_scikit_learn_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import clearformer\n"
        f"classifier = clearformer.TextClassifier(steps=2).fit({TEXTS!r}, {LABELS!r})\n"
        "print(classifier.predict(['a good film']).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(1,)\n", "")


# --- run folders and copies


def test_a_temporary_folder_goes_with_its_classifier() -> None:
    classifier = TextClassifier(steps=2).fit(TEXTS, LABELS)
    handle, run = classifier.handle_, classifier.run_
    assert run.exists()
    del classifier
    gc.collect()
    assert not run.parent.exists()
    assert handle("a good film")["label"] in ("pos", "neg")


def test_a_given_folder_is_a_run_like_any_other(tmp_path: Path) -> None:
    classifier = TextClassifier(steps=2, out=tmp_path / "run").fit(TEXTS, LABELS)
    loaded = clearformer.load(tmp_path / "run")
    assert (loaded.logits(TEXTS) == classifier.handle_.logits(TEXTS)).all()
    data = Recipe.read(tmp_path / "run" / "recipe.toml").data
    assert (data.train.given, data.valid.given) == ("a list of 28 labelled texts", "a list of 4 labelled texts")
    assert data.train.path.is_relative_to(tmp_path / "run" / "given")  # the objects are not needed to resume
    assert clearformer.train(out=tmp_path / "run", resume=True, settings=["train.steps=3"])["steps"] == 3
    with pytest.raises(CheckpointError, match="already contains a run"):
        classifier.fit(TEXTS, LABELS)


def test_copies_are_the_same_without_its_folder() -> None:
    classifier = TextClassifier(steps=5).fit(TEXTS, LABELS)
    expected, pickled, copied = classifier.predict_proba(TEXTS), pickle.dumps(classifier), copy.deepcopy(classifier)
    del classifier
    gc.collect()
    for same in (copied, pickle.loads(pickled)):
        assert (same.predict_proba(TEXTS) == expected).all()
        assert (same.steps, same.classes_.tolist()) == (5, ["neg", "pos"])
    assert not hasattr(pickle.loads(pickle.dumps(TextClassifier(steps=5))), "handle_")


def test_a_pickle_holds_files_and_plain_values(fitted: TextClassifier) -> None:
    """So that no object of torch or of ours, but the classifier itself, is built by unpickling."""
    state = fitted.__getstate__()
    assert set(state["files"]) == {"recipe.toml", "model.safetensors", "tokenizer.json", "classes.json"}
    operations = pickletools.genops(pickle.dumps(fitted, protocol=2))
    classes = {str(value).replace(" ", ".") for operation, value, _ in operations if operation.name == "GLOBAL"}
    assert {name.split(".")[0] for name in classes} <= {"clearformer", "numpy", "_codecs", "copy_reg"}
    assert {name for name in classes if name.startswith("clearformer")} == {"clearformer.estimator.TextClassifier"}


def test_a_pickle_writes_no_other_files(fitted: TextClassifier) -> None:
    state = fitted.__getstate__()
    state["files"]["../escaped"] = b"no"
    other = TextClassifier.__new__(TextClassifier)
    other.__setstate__(state)
    assert {path.name for path in other.run_.parent.rglob("*")} == {"text-classifier", *state["files"]} - {"../escaped"}


@pytest.mark.parametrize("method", ["full", "head"])
def test_a_base_model_is_fine_tuned(hub: Callable[..., Path], method: Any) -> None:
    texts, labels = ["the dog sees a tree", "a man", "the cat"] * 4, ["long", "short", "short"] * 4
    classifier = TextClassifier(base=hub("bert"), method=method, steps=3, lr=0.01).fit(texts, labels)
    assert classifier.handle_.model.base.config.d_model == 14
    same = pickle.loads(pickle.dumps(classifier))
    assert (same.predict_proba(texts) == classifier.predict_proba(texts)).all()
    with pytest.raises(ConfigError, match="`base` and `model` cannot be combined"):
        classifier.set_params(model="textcnn").fit(texts, labels)


def test_it_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    TextClassifier(steps=2).fit(TEXTS, LABELS)
    assert capfd.readouterr() == ("", "")
    TextClassifier(steps=2, verbose=True).fit(TEXTS, LABELS)
    assert "2 classes" in capfd.readouterr().err


# --- data


def test_each_class_is_held_out_in_proportion() -> None:
    labels = ["a"] * 100 + ["b"] * 31 + ["c"]
    chosen = held_out(labels, 0.1, 0)
    assert [int(chosen[np.array(labels) == label].sum()) for label in "abc"] == [10, 3, 0]
    assert (chosen == held_out(labels, 0.1, 0)).all()
    assert (chosen != held_out(labels, 0.1, 1)).any()
    assert held_out(["a", "a", "b"], 0.1, 0)[:2].sum() == 1
    assert held_out(["a", "a", "b"], 0.99, 0).tolist().count(False) == 2
    with pytest.raises(DataError, match="only one text"):
        held_out(["a", "b"], 0.1, 0)
    with pytest.raises(ConfigError, match="validation_fraction = 1"):
        held_out(["a", "b"], 1, 0)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a film", ["a"], r"expected a list of texts, not the str 'a film'\nhint: put the text in a list"),
        (np.array([["a"], ["b"]]), [0, 1], r"not an array of shape \(2, 1\)\nhint: give one column"),
        (pandas.DataFrame({"text": ["a", "b"]}), [0, 1], r"not an array of shape \(2, 1\)"),
        (["a", None], [0, 1], "input 1 is the NoneType None, not a text"),
        (["a", "b", "c"], [0, 1], "3 texts and 2 labels cannot be paired"),
        (["a", "b"], [[0], [1]], r"not an array of shape \(2, 1\)"),
        (["a", "b"], ["x", "x"], "the labels have 1 class, but at least two are needed"),
        (["a", "b"], ["x", " "], "the label ' ' is empty"),
        (["a", "b"], [1.0, float("nan")], "the label nan is empty"),
        (["a", "b"], ["x", "x "], "the labels 'x' and 'x ' have the same name"),
    ],
)
def test_data_that_cannot_be_learned_from(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TextClassifier(steps=1).fit(texts, labels)


def test_texts_and_labels_may_be_any_column() -> None:
    assert as_texts(text for text in ("a", "b")) == ["a", "b"]
    assert class_names(np.array(["b", "a", "b"])) == {"b": "b", "a": "a"}
    assert class_names(np.array([True, False])) == {True: "True", False: "False"}


@pytest.mark.data
@pytest.mark.slow
def test_reviews_are_classified() -> None:
    """Two classes of 1,000 reviews each: chance is 0.5."""
    if not POLARITY.exists():
        pytest.skip("needs rt-polarity")
    texts, labels = [], []
    for name in ("neg", "pos"):
        with gzip.open(POLARITY / f"rt-polarity.{name}.gz", "rt", encoding="latin-1") as file:
            lines = [line.strip() for line in file][:1000]
        texts, labels = texts + lines, labels + [name] * len(lines)
    scores = cross_val_score(TextClassifier(steps=200), texts, labels, cv=2)
    assert min(scores) > 0.6
