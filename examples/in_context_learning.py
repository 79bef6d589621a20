"""Learning without a gradient step: a small GPT continues a few examples of a task that it has not been trained on.

    python examples/in_context_learning.py                    minutes on a GPU
    python examples/in_context_learning.py --small            a small version, for two cores

Each line of the training text is one task, defined only by examples:

    sums       3 8>12;2 5>8;9 1>11;     a + b + k, for a k that the line does not show         (5 + 8 = 13)
    letters    sakne>snake;             words whose letters are permuted, all in the same way    (sakne -> snake)
    words      dog>kuv;cat>mip;         a new dictionary in each line                            (thanks -> merci)

The values of k, the permutations and the dictionaries of the test do not occur in training. The figure shows the
accuracy of the next answer against the number of examples before it in the line.
"""

import argparse
import json
import random
from itertools import permutations
from pathlib import Path

import line_gpt

from clearformer.plots import plot_lines

SHOTS = 12  # examples per line
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sums(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    k = rng.choice([k for k in range(20) if (k % 4 == 3) == is_test])
    pairs = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(SHOTS)]
    return [(f"{a} {b}", str(a + b + k)) for a, b in pairs]


PERMUTATIONS = list(permutations(range(4)))


def letters(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    permutation = rng.choice(PERMUTATIONS[::4] if is_test else [m for i, m in enumerate(PERMUTATIONS) if i % 4])
    words = ["".join(rng.choices(LETTERS, k=4)) for _ in range(SHOTS)]
    return [("".join(word[i] for i in permutation), word) for word in words]


def words(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    """Four words per line, drawn repeatedly, so that later examples repeat earlier ones."""
    vowels = "aeiou" if is_test else "aei"  # o and u are middle letters only in the test
    names = ["".join(rng.choices(LETTERS, k=3)) for _ in range(4)]
    meanings = {name: rng.choice(LETTERS) + rng.choice(vowels) + rng.choice(LETTERS) for name in names}
    return [(name, meanings[name]) for name in rng.choices(names, k=SHOTS)]


FAMILIES = {"sums": sums, "letters": letters, "words": words}


def line(examples: list[tuple[str, str]]) -> str:
    return "".join(f"{question}>{answer};" for question, answer in examples)


def corpus(n: int, seed: int) -> str:
    rng = random.Random(seed)
    return "".join(line(rng.choice(list(FAMILIES.values()))(rng, False)) + "\n" for _ in range(n))


def accuracies(model, family: str, n_tasks: int, seed: int = 1) -> list[float]:
    """The accuracy of the answer after 0, 1, … examples, over tasks that do not occur in training."""
    rng = random.Random(f"{family} {seed}")
    tasks = [FAMILIES[family](rng, True) for _ in range(n_tasks)]
    fractions = []
    for shots in range(SHOTS):
        prompts = [line(task[:shots]) + task[shots][0] + ">" for task in tasks]
        outputs = model.generate(prompts, max_new=6, stop=[";"])
        answers = [hypotheses[0].text for hypotheses in outputs]
        fractions.append(sum(answer == task[shots][1] for answer, task in zip(answers, tasks)) / n_tasks)
    return fractions


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/in-context"))
    parser.add_argument("--small", action="store_true", help="a small version that takes minutes on two cores")
    parser.add_argument("--steps", type=int, help="training steps; default: 12000, or 1500 with --small")
    parser.add_argument("--tasks", type=int, default=500, help="test tasks per family")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = args.out / "tasks.txt"
    text.write_text(corpus(20_000 if args.small else 400_000, seed=0))
    layers, width, tokens, steps = (3, 96, 2048, 1500) if args.small else (6, 256, 32768, 12_000)
    model = line_gpt.train(text, args.out / "run", 160, layers, width, tokens, args.steps or steps)
    results = {family: accuracies(model, family, args.tasks) for family in FAMILIES}
    (args.out / "accuracies.json").write_text(json.dumps(results, indent=2))
    figure = plot_lines(
        {family: (range(SHOTS), fractions) for family, fractions in results.items()},
        "examples before the question",
        "accuracy on unseen tasks",
        args.out / "in-context.png",
        limits=(0, 1),
    )
    for family, fractions in results.items():
        print(f"{family:8}" + " ".join(f"{accuracy:.2f}" for accuracy in fractions))
    print(figure)
    return results


if __name__ == "__main__":
    main()
