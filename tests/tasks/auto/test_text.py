"""A recipe for a model that goes on with another text, before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from clearformer.errors import ConfigError
from clearformer.recipe import Recipe
from clearformer.tasks.auto import text
from clearformer.tasks.causal_lm import CausalLMTask
from clearformer.tasks.task import Request
from clearformer.tuning.methods import Method, rate_for

SOURCES: dict[str, dict[str, Any]] = {"train": {"path": "other.txt"}}
GPT = '[data]\njoined = true\ntrain = { path = "a.txt", documents = "line" }\n[model]\nkind = "gpt"\nd_model = 36\n'
BERT = '[origin]\nsource = "elsewhere"\n[model]\nkind = "bert"\n'


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say how long the text is, instead of reading one."""
    return lambda n_chars: monkeypatch.setattr(text, "count_characters", lambda recipe: n_chars)


def plan_text(model: str | None, settings: list[str]) -> Any:
    return CausalLMTask.plan(Request(SOURCES, model, settings, "cpu", Recipe.parse)).recipe


def plan_finetune_text(start: Path, method: Method, settings: list[str]) -> Any:
    request = Request(SOURCES, None, settings, "cpu", Recipe.parse, method)
    return CausalLMTask.plan_finetune(request, start, Recipe.read(start / "recipe.toml")).recipe


def written(folder: Path, recipe: str) -> Path:
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "objective"),
    [("GPT", "gpt", "causal-lm"), ("LSTM", "rnn-lm", "causal-lm"), ("bert", "bert", "masked-lm"),
     ("t5", "t5", "span-corruption")],
)  # fmt: skip
def test_a_kind_of_model_gets_a_size_and_an_objective_that_suit(
    surveyed: Any, name: str, kind: str, objective: str
) -> None:
    surveyed(10_007)
    recipe = plan_text(name, [])
    assert (recipe.model.kind, recipe.objective.kind) == (kind, objective)
    assert recipe.model.d_model == (256 if kind == "rnn-lm" else 128)
    assert recipe.text.kind == ("char" if objective == "causal-lm" else "byte-bpe")
    if name == "GPT":
        assert recipe == plan_text(None, [])


def test_what_belongs_to_the_weights_is_kept(surveyed: Any, tmp_path: Path) -> None:
    surveyed(10_007)
    start = written(tmp_path, f'{GPT}[text]\nkind = "word"\n[optim]\nkind = "sgd"\nlr = 0.7\n[train]\ntokens = 5003\n')
    old, new = Recipe.read(start / "recipe.toml"), plan_finetune_text(start, "full", ["train.patience=3"])
    assert (new.text, new.model, new.objective, new.decode) == (old.text, old.model, old.objective, old.decode)
    assert (new.data.joined, new.data.train.documents, new.data.train.path) == (True, "line", Path("other.txt"))
    assert (new.optim.kind, new.optim.lr, new.train.patience) == ("sgd", pytest.approx(0.7 / 3), 3)
    assert (new.tuning and new.tuning.method, new.tuning and new.tuning.base) == ("full", str(tmp_path.resolve()))
    again = plan_finetune_text(written(tmp_path, new.dump()), "full", [])
    assert again.optim.lr == pytest.approx(0.7 / 9)
    part = plan_finetune_text(start, "lora", [])
    assert (part.optim.kind, part.tuning and part.tuning.base) == ("adamw", str(tmp_path.resolve()))
    whole = plan_finetune_text(written(tmp_path, part.dump()), "full", [])
    assert (whole.tuning and whole.tuning.method, whole.optim.lr) == ("full", rate_for("full", 36))


def test_fewer_passes_over_more_text_and_ten_steps_of_the_least_in_each(surveyed: Any, tmp_path: Path) -> None:
    start, passes = written(tmp_path, f'{GPT}[text]\nkind = "char"\n'), []
    for n_chars in (20_011, 1_000_003, 100_000_007):
        surveyed(n_chars)
        train = plan_finetune_text(start, "full", []).train
        assert n_chars / train.tokens >= 10
        passes.append(round(train.steps * train.tokens / n_chars, 1))
    assert passes == [10, 3, 1]


def test_an_encoder_of_sentences_learns_a_new_head_with_all_weights(surveyed: Any, tmp_path: Path) -> None:
    surveyed(10_007)
    start = written(tmp_path, f"{BERT}word_head = false\n")
    assert plan_finetune_text(start, "full", []).model.word_head
    with pytest.raises(ConfigError, match=r"no language-model head(?s:.*)--method full"):
        plan_finetune_text(start, "lora", [])


def test_what_is_refused_is_refused_before_the_text_is_read(tmp_path: Path) -> None:
    start = written(tmp_path, BERT)
    with pytest.raises(
        ConfigError, match=r"no classification head to replace\nhint: choose --method full, lora or prefix"
    ):
        plan_finetune_text(start, "head", [])
    with pytest.raises(ConfigError, match="no layer `z` to adapt"):
        plan_finetune_text(start, "lora", ['tuning.lora.targets=["z"]'])
    for kind, task in (("transformer", "translation"), ("vit", "image-classification")):
        start = written(tmp_path, f'[origin]\nsource = "elsewhere"\n[model]\nkind = "{kind}"\n')
        with pytest.raises(ConfigError, match=f"is a model for {task}, not for text\nhint: start from a GPT"):
            plan_finetune_text(start, "full", [])
