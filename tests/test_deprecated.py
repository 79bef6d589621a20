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
    with pytest.warns(DeprecationWarning, match=rf"write clearformer\.evaluate\(model, {keyword}=…\)") as caught:
        assert getattr(clearformer, name)("run", "data", device="cpu") == {
            "model": "run",
            "device": "cpu",
            keyword: "data",
        }
    assert caught[0].filename == __file__
    assert name not in clearformer.__all__
