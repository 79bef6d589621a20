"""Chain of thought: the same small GPT adds long numbers, with and without writing down the steps.

    python examples/chain_of_thought.py                       minutes on a GPU
    python examples/chain_of_thought.py --small               a small version, for two cores

    straight        347+589=936
    step by step    347+589=7+9+0:16 4+8+1:13 3+5+1:9 936        units first, each with its carry

To write only the answer, the model must carry through all digits before it writes the first one. With written steps,
every step needs only three digits that are already in the text. Both models see the same number of sums and train for
the same number of steps; test sums do not occur in training.
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
    """Pairs of numbers of the same length; there are few short pairs, so they repeat."""
    rng = random.Random(seed)
    lengths = [rng.choice(digits) for _ in range(n)]
    return [(rng.randrange(10 ** (d - 1), 10**d), rng.randrange(10 ** (d - 1), 10**d)) for d in lengths]


def accuracies(model, digits: range, n: int, trained: set[tuple[int, int]]) -> list[float]:
    fractions = []
    for d in digits:
        pairs = [pair for pair in sums(range(d, d + 1), 2 * n, seed=1000 + d) if pair not in trained][:n]
        outputs = model.generate([f"{a}+{b}=" for a, b in pairs], max_new=120, stop=["\n"])
        answers = [(hypotheses[0].text.split() or [""])[-1] for hypotheses in outputs]
        fractions.append(sum(answer == str(a + b) for answer, (a, b) in zip(answers, pairs)) / max(1, len(pairs)))
    return fractions


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/chain-of-thought"))
    parser.add_argument("--small", action="store_true", help="a small version that takes minutes on two cores")
    parser.add_argument("--steps", type=int, help="training steps; default: 800, or 1500 with --small")
    parser.add_argument("--sums", type=int, default=300, help="test sums of each length")
    args = parser.parse_args()
    digits = range(2, 4) if args.small else range(2, 9)
    layers, width, tokens, steps = (3, 96, 2048, 1500) if args.small else (4, 256, 32768, 800)
    pairs = sums(digits, 20_000 if args.small else 200_000, seed=0)
    results = {}
    for name, write in WAYS.items():
        folder = args.out / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "sums.txt"
        text.write_text("".join(write(*pair) + "\n" for pair in pairs))
        model = line_gpt.train(text, folder / "run", 128, layers, width, tokens, args.steps or steps)
        results[name] = accuracies(model, digits, args.sums, set(pairs))
    (args.out / "accuracies.json").write_text(json.dumps({"digits": list(digits), **results}, indent=2))
    figure = plot_lines(
        {name: (digits, fractions) for name, fractions in results.items()},
        "digits of each number",
        "accuracy on unseen sums",
        args.out / "chain-of-thought.png",
        limits=(0, 1),
    )
    for name, fractions in results.items():
        print(f"{name:14}" + " ".join(f"{accuracy:.2f}" for accuracy in fractions))
    print(figure)
    return results


if __name__ == "__main__":
    main()
