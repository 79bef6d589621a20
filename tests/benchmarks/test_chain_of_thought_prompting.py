"""The questions, their worked steps, and how answers are read and compared."""

import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from clearformer.handles.writer import Continuation


@pytest.fixture
def prompting() -> Any:
    return import_module("chain_of_thought_prompting")


def test_steps_lead_from_the_question_to_the_answer(prompting: Any) -> None:
    problem = prompting.Problem("What is 4 + 7 + 2 + 5?", 4, (7, 2, 5))
    assert problem.worked(with_steps=True) == (
        "Q: What is 4 + 7 + 2 + 5?\nA: 4 + 7 = 11. 11 + 2 = 13. 13 + 5 = 18. The answer is 18."
    )
    assert problem.worked(with_steps=False) == "Q: What is 4 + 7 + 2 + 5?\nA: The answer is 18."
    fewer = prompting.Problem("Ada has 3 …", 3, (4, -5))
    assert fewer.steps() == ["3 + 4 = 7.", "7 - 5 = 2."]


def test_questions_have_their_numbers_and_answers_above_zero(prompting: Any) -> None:
    for make in prompting.TASKS.values():
        for seed in range(200):
            problem = make(random.Random(seed))
            said = [int(word.strip("?.")) for word in problem.question.split() if word.strip("?.").isdigit()]
            assert said == [problem.first, *map(abs, problem.added)]
            assert problem.answer >= 2


def test_prompts_differ_in_nothing_but_the_steps(prompting: Any) -> None:
    for make in prompting.TASKS.values():
        problems = prompting.page(make, random.Random(3))
        assert len({problem.question for problem in problems}) == prompting.SHOTS + 1
        text = prompting.prompt(problems, with_steps=True)
        assert text.endswith(f"Q: {problems[-1].question}\nA:")
        for problem in problems:
            for step in problem.steps():
                text = text.replace(f" {step}", "", 1)
        assert text == prompting.prompt(problems, with_steps=False)


def test_the_last_answer_is_read(prompting: Any) -> None:
    assert prompting.read_answer(" 4 + 7 = 11. The answer is 11.") == 11
    assert prompting.read_answer(" The answer is 3. No. The answer is 18") == 18
    assert prompting.read_answer(" 18.") is None
    assert prompting.right_steps(["4 + 7 = 11. 11 - 2 = 8.", "none"]) == {"steps": 2, "right_steps": 1}


def test_the_sign_test(prompting: Any) -> None:
    assert prompting.sign_test(10, 0) == prompting.sign_test(10, 10) == pytest.approx(2 / 2**10)
    assert prompting.sign_test(5, 1) == pytest.approx(2 * (1 + 5) / 2**5)
    assert prompting.sign_test(4, 2) == 1.0
    assert prompting.sign_test(0, 0) == 1.0


class Stepwise:
    """Answers right if the examples have steps, and otherwise 1. Remembers its prompts."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def generate(self, prompts: list[str], **settings: Any) -> list[list[Continuation]]:
        def answer(prompt: str) -> str:
            question = prompt.rpartition("Q: What is ")[2].partition("?")[0]
            return f" The answer is {sum(map(int, question.split(' + '))) if ' = ' in prompt else 1}."

        self.prompts += prompts
        return [[Continuation(answer(prompt), [], 0.0, [], "eos")] for prompt in prompts]


def test_a_model_that_needs_steps_is_found_out(prompting: Any) -> None:
    result = prompting.compare(Stepwise(), "sums", 7, skip=3)
    assert (result["straight"], result["with_steps"]) == (0.0, 1.0)
    assert (result["right_only_with_steps"], result["right_only_straight"]) == (7, 0)
    assert result["p"] == pytest.approx(2 / 2**7, rel=0.05)


def test_skipped_questions_are_not_asked_again(prompting: Any) -> None:
    all_of_them, first, rest = Stepwise(), Stepwise(), Stepwise()
    prompting.compare(all_of_them, "sums", 5, skip=0)
    prompting.compare(first, "sums", 3, skip=0)
    prompting.compare(rest, "sums", 2, skip=3)
    assert not set(first.prompts) & set(rest.prompts)
    assert set(first.prompts) | set(rest.prompts) == set(all_of_them.prompts)


def test_the_figure_shows_both_tasks_and_both_ways(prompting: Any, tmp_path: Path) -> None:
    result = json.loads((prompting.RESULTS / "chain-of-thought-prompting.json").read_text(encoding="utf-8"))
    prompting.plot(result, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for label in ("stories", "sums", "without steps", "with steps", "14%", "2%", "9%"):
        assert label in text
