from pathlib import Path
from typing import Any

import pytest

from clearformer.data.parallel import PairSurvey
from clearformer.errors import ConfigError
from clearformer.loading.folder import read_recipe
from clearformer.models.build import presets
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS
from clearformer.tasks.auto import pairs
from clearformer.tasks.task import Request

SOURCES: dict[str, dict[str, Any]] = {"train": {"path": "pairs.tsv"}}


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say how large the corpus is, instead of reading one."""

    def say(n_pairs: int, n_chars: int = 40) -> None:
        monkeypatch.setattr(pairs, "survey_pairs", lambda data: PairSurvey(n_pairs, n_pairs * n_chars))

    return say


def plan(task: str, sources: Any, model: str | None, settings: list[str], device: str = "auto") -> Any:
    return TASKS.resolve(task).plan(Request(sources, model, settings, device, Recipe.parse)).recipe


def plan_pairs(*arguments: Any) -> Any:
    return plan("translation", *arguments)


def plan_finetune(task: str, start: Path, sources: Any, method: Any, settings: list[str]) -> Any:
    request = Request(sources, None, settings, "auto", Recipe.parse, method)
    return TASKS.resolve(task).plan_finetune(request, start, read_recipe(start)).recipe


def plan_finetune_pairs(*arguments: Any) -> Any:
    return plan_finetune("translation", *arguments)


@pytest.mark.parametrize(("n_pairs", "width"), [(11, 128), (2_001, 128), (100_003, 232), (5_000_011, 608)])
def test_larger_corpora_get_wider_models_of_the_same_depth(surveyed: Any, n_pairs: int, width: int) -> None:
    surveyed(n_pairs)
    model = plan_pairs(SOURCES, None, []).model
    assert (model.d_model, model.n_encoder_layers, model.n_decoder_layers, model.n_heads) == (width, 4, 4, 4)


def test_small_corpora_get_the_sizes_of_transformer_tiny(surveyed: Any) -> None:
    surveyed(29_000)
    model = plan_pairs(SOURCES, None, []).model
    assert {key: getattr(model, key) for key in presets()["transformer-tiny"]} == presets()["transformer-tiny"]


def test_a_wide_model_gets_a_low_learning_rate(surveyed: Any) -> None:
    """Widths 128, 256 and 512, at √2 · 0.002 for 2,048 tokens per step: each doubling divides by 2^1.5."""
    surveyed(3_000)
    rates = [plan_pairs(SOURCES, f"transformer-{size}", []).optim.lr for size in ("tiny", "small", "base")]
    assert rates == [0.00283, 0.001, 0.000354]


def test_vocabulary_and_batch_grow_and_dropout_and_passes_shrink(surveyed: Any) -> None:
    plans = []
    for n_pairs in (1_009, 10_007, 100_003, 1_000_003, 10_000_019):
        surveyed(n_pairs)
        recipe = plan_pairs(SOURCES, None, [])
        passes = recipe.train.steps * recipe.train.tokens / n_pairs
        plans.append((recipe.text.vocab_size, recipe.train.tokens, -recipe.model.dropout, -passes))
    for measure in zip(*plans):
        assert list(measure) == sorted(measure)


def test_steps_follow_from_epochs_and_tokens(surveyed: Any) -> None:
    """29,000 pairs of 80 characters, hence 20 tokens: 60 epochs are 34.8 million tokens in steps of 4096, 90 % full."""
    surveyed(29_000, 80)
    assert plan_pairs(SOURCES, None, []).train.steps == 9440
    surveyed(29_000, 16)
    assert plan_pairs(SOURCES, None, []).train.steps == 3000  # short sentences: at least this many


def test_settings_win_and_are_said(surveyed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    surveyed(101)
    recipe = plan_pairs(SOURCES, "transformer-small", ["train.steps=123", "model.d_ff=77", "optim.lr=0.5"], "cpu")
    assert (recipe.train.steps, recipe.model.d_ff, recipe.model.d_model, recipe.optim.lr) == (123, 77, 256, 0.5)
    said = capsys.readouterr().err.replace("\n", " ")
    for word in ("101 pairs", "transformer-small", "123 steps", "0.5", "cpu"):
        assert word in said


def test_a_vocabulary_of_our_choice_may_come_out_smaller_but_not_one_asked_for(surveyed: Any) -> None:
    surveyed(101)
    assert not plan_pairs(SOURCES, None, []).text.strict
    assert plan_pairs(SOURCES, None, ["text.vocab_size=5000"]).text.strict


def test_a_misspelt_key_is_found_before_the_corpus_is_read() -> None:
    with pytest.raises(ConfigError, match=r"(?s)unknown key `step`.*did you mean `steps`"):
        plan_pairs({"train": {"path": "there-is-no-such-file.tsv"}}, None, ["train.step=3"])


def test_sizes_that_fit_the_chosen_preset_are_taken(surveyed: Any) -> None:
    """36 is a multiple of tiny's four heads, though not of the eight of a plain Transformer."""
    surveyed(101)
    assert plan_pairs(SOURCES, None, ["model.d_model=36"]).model.n_heads == 4


def test_a_kind_that_is_set_has_its_own_sizes_and_one_that_is_named_gets_ours(surveyed: Any) -> None:
    surveyed(101)
    recipe = plan_pairs(SOURCES, None, ["model.kind=transformer"])
    assert (recipe.model.preset, recipe.model.d_model) == (None, 512)
    assert plan_pairs(SOURCES, "transformer", []) == plan_pairs(SOURCES, None, [])


def test_a_warm_up_is_a_tenth_of_the_steps_asked_for(surveyed: Any) -> None:
    surveyed(2_003)
    for steps in (3, 70, 30_000):
        assert plan_pairs(SOURCES, None, [f"train.steps={steps}"]).schedule.warmup == steps // 10


@pytest.mark.parametrize(("steps", "said"), [(3, "about 0.32 epochs"), (130, "about 14 epochs")])
def test_a_part_of_a_pass_is_said_as_one(
    surveyed: Any, capsys: pytest.CaptureFixture[str], steps: int, said: str
) -> None:
    surveyed(857)
    plan_pairs(SOURCES, None, [f"train.steps={steps}"])
    assert said in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("task", ["translation", "causal-lm"])
def test_a_model_that_nobody_knows_is_said_to_be_unknown(task: str) -> None:
    with pytest.raises(ConfigError, match="unknown preset `nonsense`"):
        plan(task, SOURCES, "nonsense", [])


def test_finetuning_keeps_what_belongs_to_the_weights(surveyed: Any, tmp_path: Path) -> None:
    surveyed(503)
    old = plan_pairs(SOURCES, None, ["model.d_model=44", "text.lowercase=true", "decode.beam=7", "optim.lr=0.02"])
    (tmp_path / "recipe.toml").write_text(old.dump(), encoding="utf-8")
    new = plan_finetune_pairs(tmp_path, {"train": {"path": "more.tsv"}}, "full", ["train.patience=3"])
    assert (new.model, new.text, new.decode) == (old.model, old.text, old.decode)
    assert new.data.train.path == Path("more.tsv")
    assert (new.optim.lr, new.train.patience) == (pytest.approx(0.002), 3)


def test_only_what_translates_goes_on_from_pairs(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        '[data]\ntrain.path = "a.txt"\n[model]\nkind = "gpt"\n[objective]\nkind = "causal-lm"\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"is a model for causal-lm, not for translation\nhint: .* a translator"):
        plan_finetune_pairs(tmp_path, SOURCES, "full", [])


@pytest.mark.parametrize(("method", "said"), [("lora", "no layer `q` to adapt"), ("prefix", "has no attention layers")])
@pytest.mark.parametrize(
    ("task", "model"), [("translation", 'kind = "seq2seq"'), ("classification", 'kind = "classifier"')]
)
def test_what_a_recurrent_network_cannot_take_is_refused_before_data_is_read(
    tmp_path: Path, task: str, model: str, method: str, said: str
) -> None:
    inner = '[model.base]\nkind = "birnn"\n' if "classifier" in model else ""
    recipe = f'[origin]\nsource = "elsewhere"\n[model]\n{model}\n{inner}'
    (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{said}(?s:.*)--method full"):
        plan_finetune(task, tmp_path, {"train": {"path": Path("there-is-no-such-file.tsv")}}, method, [])
