"""Thinking aloud: the same small GPT adds long numbers, once straight away and once step by step.

    python examples/chain_of_thought.py                       on a GPU, minutes
    python examples/chain_of_thought.py --small               in miniature, two cores

    straight        347+589=936
    step by step    347+589=7+9+0:16 4+8+1:13 3+5+1:9 936        units first, each with what was carried

Answering straight away, the model must carry through all the digits before it writes the first. Written out, every
step needs three digits that stand on the page. Both see as many sums and train for as many steps; the sums of the test
were never trained on.
"""

import argparse
import json
import random
from pathlib import Path

import line_gpt

from clearformer.plots import plot_lines


def straight(a: int, b: int) -> str:
    return f"{a}+{b}={a + b}"


def step_by_step(a: int, b: int) -> str:
    steps, carry = [], 0
    for left, right in zip(reversed(str(a)), reversed(str(b))):
        total = int(left) + int(right) + carry
        steps.append(f"{left}+{right}+{carry}:{total}")
        carry = total // 10
    return f"{a}+{b}={' '.join(steps)} {a + b}"


WAYS = {"straight": straight, "step by step": step_by_step}


def sums(digits: range, n: int, seed: int) -> list[tuple[int, int]]:
    """Pairs of numbers of the same length; of the short ones there are few, and they come again."""
    rng = random.Random(seed)
    lengths = [rng.choice(digits) for _ in range(n)]
    return [(rng.randrange(10 ** (d - 1), 10**d), rng.randrange(10 ** (d - 1), 10**d)) for d in lengths]


def accuracies(model, digits: range, n: int, trained: set[tuple[int, int]]) -> list[float]:
    right = []
    for d in digits:
        pairs = [pair for pair in sums(range(d, d + 1), 2 * n, seed=1000 + d) if pair not in trained][:n]
        told = model.generate([f"{a}+{b}=" for a, b in pairs], max_new=120, stop=["\n"])
        answers = [(some[0].text.split() or [""])[-1] for some in told]
        right.append(sum(answer == str(a + b) for answer, (a, b) in zip(answers, pairs)) / max(1, len(pairs)))
    return right


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/chain-of-thought"))
    parser.add_argument("--small", action="store_true", help="minutes on two cores instead of on a GPU")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--sums", type=int, default=300, help="of each length, in the test")
    given = parser.parse_args()
    digits = range(2, 4) if given.small else range(2, 9)
    layers, width, tokens, steps = (3, 96, 2048, 1500) if given.small else (4, 256, 32768, 800)
    pairs = sums(digits, 20_000 if given.small else 200_000, seed=0)
    found = {}
    for name, write in WAYS.items():
        folder = given.out / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "sums.txt"
        text.write_text("".join(write(*pair) + "\n" for pair in pairs))
        model = line_gpt.train(text, folder / "run", 128, layers, width, tokens, given.steps or steps)
        found[name] = accuracies(model, digits, given.sums, set(pairs))
    (given.out / "accuracies.json").write_text(json.dumps({"digits": list(digits), **found}, indent=2))
    picture = plot_lines(
        {name: (digits, right) for name, right in found.items()},
        "digits of each number",
        "share of right sums, never seen",
        given.out / "chain-of-thought.png",
        limits=(0, 1),
    )
    for name, right in found.items():
        print(f"{name:14}" + " ".join(f"{share:.2f}" for share in right))
    print(picture)
    return found


if __name__ == "__main__":
    main()
