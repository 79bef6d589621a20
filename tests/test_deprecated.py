from typing import Any

import pytest

import clearformer
from clearformer import deprecated


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("evaluate_images", "images"),
        ("evaluate_labels", "labels"),
        ("evaluate_speech", "recordings"),
        ("evaluate_text", "text"),
    ],
)
def test_an_old_name_says_the_new_call_and_makes_it(monkeypatch: pytest.MonkeyPatch, name: str, keyword: str) -> None:
    def evaluate(model: str, device: str, **data: Any) -> dict[str, Any]:
        return {"model": model, "device": device} | {key: value for key, value in data.items() if value is not None}

    monkeypatch.setattr(deprecated, "evaluate", evaluate)
    with pytest.warns(DeprecationWarning, match=rf"use clearformer\.evaluate\(model, {keyword}=…\)") as caught:
        assert getattr(clearformer, name)("run", "data", device="cpu") == {
            "model": "run",
            "device": "cpu",
            keyword: "data",
        }
    assert caught[0].filename == __file__
    assert name not in clearformer.__all__


def test_names_that_moved_are_found_and_said() -> None:
    from clearformer import recipe, registry
    from clearformer.models.build import build_model
    from clearformer.models.gpt import GPT

    with pytest.warns(DeprecationWarning, match=r"recipe\.build_model has moved to clearformer\.models\.build"):
        assert recipe.build_model is build_model
    with pytest.warns(DeprecationWarning, match="clearformer.models:MODELS"):
        assert registry.resolve("model", "gpt") is GPT
    with pytest.warns(DeprecationWarning, match="clearformer.models:MODELS"):
        assert "gpt" in registry.names("model")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        recipe.nothing  # noqa: B018
