"""Vectors and classes for many HTTP clients: requests that share passes of the model, and one request at a time.

    python benchmarks/serve_batches.py [--clients 32] [--seconds 15] [--rounds 3] [--model FOLDER] [--out FILE]

The clients are another process on the same cores (http_clients.py). Each asks for one text at a time, of 1 to 4
sentences, by /v1/embeddings or /v1/classify. The two servers differ in one point: `joint` is `clearformer serve`, and
in `alone` no two requests have an equal verb, so that each has passes of its own. They take turns, round by round.

Every answer is compared with that of the offline command for all texts: the label must be the same, and `largest` is
the largest difference of a feature or of a probability. `offline` are its texts per second.

Without --model, a classifier with the sizes of all-MiniLM-L6-v2 and random weights is made.
"""

import argparse
import base64
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from provenance import RESULTS, record, stamp
from serve_engine import mixed_texts
from serve_http import ask, percentiles, process

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, train_tokenizer

SIZES = {"n_layers": 6, "d_model": 384, "d_ff": 1536, "n_heads": 12, "max_length": 512}  # all-MiniLM-L6-v2
CLASSES = ["bad", "good", "neither"]
LARGEST = 1e-4  # difference from the command's answer that is allowed: a hundred times the rounding of a feature of 1
VERBS = ("embeddings", "classify")


def write_classifier(out, texts):
    """Write a classifier with random weights."""
    tokenizer = train_tokenizer(texts, TextConfig(kind="wordpiece", vocab_size=4000, strict=False, min_frequency=1))
    base = {"kind": "bert", "vocab": tokenizer.vocab_size, **SIZES}
    config = parse_model({"kind": "classifier", "base": base, "n_classes": len(CLASSES)}, "[model]")
    torch.manual_seed(0)
    recipe = foreign_recipe(config, Origin(source="nowhere"))
    write_run(out, recipe, weights_of(build_model(config)), [tokenizer], classes=CLASSES)
    return out


def serve(kind, model):
    """Be one of the two servers."""
    from clearformer.serve.shared import Sharing
    from clearformer.serve.start import start

    if kind == "alone":
        Sharing.shares = property(id)
    start([model], port=0, say=lambda line: print(line, flush=True))


def requests_for(verb, texts):
    if verb == "embeddings":
        return [{"path": "/v1/embeddings", "body": {"input": text, "encoding_format": "base64"}} for text in texts]
    return [{"path": "/v1/classify", "body": {"text": text, "top": len(CLASSES)}} for text in texts]


def numbers_of(verb, answer):
    """Return the numbers of an answer, and its label."""
    if verb == "embeddings":
        return np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4"), None
    [row] = answer["texts"]
    return by_class(row), row["label"]


def by_class(row):
    return np.array([one["probability"] for one in sorted(row["top"], key=lambda one: one["label"])])


def compute_offline(verb, handle, texts):
    """Return the numbers and the label of each text, and the texts per second."""
    begin = time.perf_counter()
    if verb == "embeddings":
        rows = [(vector, None) for vector in handle.embed(texts).numpy()]
    else:
        rows = [(by_class(row), row["label"]) for row in handle.predict(texts, top=len(CLASSES))]
    return rows, round(len(texts) / (time.perf_counter() - begin))


def summary(verb, outcomes, expected):
    """Return what the clients saw in all rounds."""
    answers = [answer for outcome in outcomes for answer in outcome["answers"]]
    right = [one for one in answers if one[1] == 200]
    seen = [(*numbers_of(verb, json.loads(text)), *expected[row]) for row, _, text, *_ in right]
    differences = [float(abs(numbers - others).max()) for numbers, _, others, _ in seen]
    labels = [label == other for _, label, _, other in seen]
    return {
        "answers": len(answers),
        "errors": len(answers) - len(right),
        "different": sum(one > LARGEST or not same for one, same in zip(differences, labels)),
        "largest": float(f"{max(differences):.2g}"),
        "requests_per_second": round(len(right) / sum(outcome["seconds"] for outcome in outcomes)),
        "ms": percentiles([last for *_, last in right]),
    }


def measure(arguments, model):
    texts, _ = mixed_texts(arguments.texts)
    handle, result = clearformer.load(model), {}
    here = str(Path(__file__))
    expected = {}
    for verb in VERBS:
        compute_offline(verb, handle, texts)  # a warm-up
        expected[verb], rate = compute_offline(verb, handle, texts)
        result[verb] = {"offline_texts_per_second": rate}
    outcomes = {(verb, kind): [] for verb in VERBS for kind in ("joint", "alone")}
    with (
        process(here, "--serve", "joint", "--model", str(model)) as (_, joint),
        process(here, "--serve", "alone", "--model", str(model)) as (_, alone),
    ):
        for verb in VERBS:
            requests = requests_for(verb, texts)
            for url in (joint, alone):
                ask(url, requests, arguments.clients, 2)  # a warm-up
            for _ in range(arguments.rounds):
                for kind, url in (("joint", joint), ("alone", alone)):
                    outcomes[verb, kind].append(ask(url, requests, arguments.clients, arguments.seconds))
    for (verb, kind), some in outcomes.items():
        result[verb][kind] = summary(verb, some, expected[verb])
    for verb in VERBS:
        rates = [result[verb][kind]["requests_per_second"] for kind in ("joint", "alone")]
        result[verb]["joint_over_alone"] = round(rates[0] / rates[1], 2)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--seconds", type=int, default=15, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a classifier of texts")
    parser.add_argument("--serve", choices=("joint", "alone"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "serve-batches.json")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.model)
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or write_classifier(Path(folder) / "minilm", mixed_texts(arguments.texts)[0])
        result = measure(arguments, model)
    given = [f"--{name} {getattr(arguments, name)}" for name in ("clients", "texts", "seconds", "rounds")]
    given += [f"--model {arguments.model}"] if arguments.model else []
    record({**result, **stamp(f"python benchmarks/serve_batches.py {' '.join(given)}")}, arguments.out)


if __name__ == "__main__":
    main()
