"""Learning without a gradient step: a small GPT is shown a few examples of a task it has never seen, and goes on.

    python examples/in_context_learning.py                    on a GPU, minutes
    python examples/in_context_learning.py --small            in miniature, two cores

Each line of the training text is one task, told by examples alone:

    sums       3 8>12;2 5>8;9 1>11;     a + b + k, for a k that the line does not name         (5 + 8 = 13)
    letters    sakne>snake;             a word whose letters were moved, the same way each time  (sakne -> snake)
    words      dog>kuv;cat>mip;         a dictionary of its own                                  (thanks -> merci)

The k, the moves and the dictionaries of the test are none of those trained on. What is drawn is how often the next
answer is right, against how many examples came before it in the line.
"""

import argparse
import json
import random
from itertools import permutations
from pathlib import Path

import line_gpt

from clearformer.plots import plot_lines

SHOTS = 12  # examples in a line
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sums(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    k = rng.choice([k for k in range(20) if (k % 4 == 3) == is_test])
    pairs = [(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(SHOTS)]
    return [(f"{a} {b}", str(a + b + k)) for a, b in pairs]


MOVES = list(permutations(range(4)))


def letters(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    move = rng.choice(MOVES[::4] if is_test else [m for i, m in enumerate(MOVES) if i % 4])
    words = ["".join(rng.choices(LETTERS, k=4)) for _ in range(SHOTS)]
    return [("".join(word[i] for i in move), word) for word in words]


def words(rng: random.Random, is_test: bool) -> list[tuple[str, str]]:
    """Four words a line, drawn again and again, so that later examples repeat earlier ones."""
    vowels = "aeiou" if is_test else "aei"  # what the test's dictionaries are made of was never seen together
    names = ["".join(rng.choices(LETTERS, k=3)) for _ in range(4)]
    means = {name: rng.choice(LETTERS) + rng.choice(vowels) + rng.choice(LETTERS) for name in names}
    return [(name, means[name]) for name in rng.choices(names, k=SHOTS)]


FAMILIES = {"sums": sums, "letters": letters, "words": words}


def line(examples: list[tuple[str, str]]) -> str:
    return "".join(f"{question}>{answer};" for question, answer in examples)


def corpus(n: int, seed: int) -> str:
    rng = random.Random(seed)
    return "".join(line(rng.choice(list(FAMILIES.values()))(rng, False)) + "\n" for _ in range(n))


def accuracies(model, family: str, n_tasks: int, seed: int = 1) -> list[float]:
    """How often the answer after 0, 1, … examples is right, over tasks that were never trained on."""
    rng = random.Random(f"{family} {seed}")
    tasks = [FAMILIES[family](rng, True) for _ in range(n_tasks)]
    right = []
    for shots in range(SHOTS):
        prompts = [line(task[:shots]) + task[shots][0] + ">" for task in tasks]
        told = model.generate(prompts, max_new=6, stop=[";"])
        right.append(sum(some[0].text == task[shots][1] for some, task in zip(told, tasks)) / n_tasks)
    return right


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/in-context"))
    parser.add_argument("--small", action="store_true", help="minutes on two cores instead of on a GPU")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tasks", type=int, default=500, help="of each family, in the test")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    text = given.out / "tasks.txt"
    text.write_text(corpus(20_000 if given.small else 400_000, seed=0))
    layers, width, tokens, steps = (3, 96, 2048, 1500) if given.small else (6, 256, 32768, 12_000)
    model = line_gpt.train(text, given.out / "run", 160, layers, width, tokens, given.steps or steps)
    found = {family: accuracies(model, family, given.tasks) for family in FAMILIES}
    (given.out / "accuracies.json").write_text(json.dumps(found, indent=2))
    picture = plot_lines(
        {family: (range(SHOTS), right) for family, right in found.items()},
        "examples before the question",
        "share of right answers, tasks never seen",
        given.out / "in-context.png",
        limits=(0, 1),
    )
    for family, right in found.items():
        print(f"{family:8}" + " ".join(f"{share:.2f}" for share in right))
    print(picture)
    return found


if __name__ == "__main__":
    main()
