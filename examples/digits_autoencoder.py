"""Handwritten digits through eight numbers and back: a convolutional autoencoder beside PCA, on two cores in a minute.

    python examples/digits_autoencoder.py                       # scikit-learn's digits, 8×8: pip install scikit-learn
    python examples/digits_autoencoder.py --images photos/      # or pictures of yours, as `clearformer train` has them

Writes OUT/digits.png: some digits, what comes back of each, and where their codes lie; and OUT/errors.json, the mean of
(x̂ − x)² over digits that neither has seen, where all pixels have a spread of 1.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import clearformer
from clearformer.data.image_store import ImageStore
from clearformer.layers.pca import fit_pca


def write_digits(path: Path) -> Path:
    """1,797 digits of 8×8, their greys from 0 … 16 to 0 … 255."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise SystemExit("scikit-learn brings the digits: pip install scikit-learn, or give --images") from None
    digits = load_digits()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=(digits.images * 255 / 16).round().astype("uint8"), labels=digits.target)
    return path


def pca_error(run: Path, n_numbers: int) -> float:
    """Of PCA fitted to the pictures that the autoencoder learnt from, on those that it is tested on."""
    train, test = (ImageStore(run / "data" / f"{split}.safetensors") for split in ("train", "test"))
    points, others = (torch.from_numpy(store.pixels / 255.0).flatten(2).flatten(1) for store in (train, test))
    pca = fit_pca(points, n_numbers)
    lost = (pca.reconstruct(pca.transform(others)) - others).view(len(others), len(train.std), -1)
    return float((lost / torch.tensor(train.std)[:, None]).square().mean())


def main() -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="scikit-learn's digits, if not given")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"))
    parser.add_argument("--numbers", type=int, default=8, help="of a code; 2 makes it a map")
    parser.add_argument("--steps", type=int, default=1200)
    given = parser.parse_args()
    torch.set_num_threads(1)  # at this size a second one would only be waited for
    images, run = given.images or write_digits(given.out / "digits.npz"), given.out / "autoencoder"
    settings = {
        "model.d_code": given.numbers,
        "train.steps": given.steps,
        "train.validate_every": max(1, given.steps // 4),
        "data.held_out": 0.1,
        "data.held_out_test": 0.2,
    }
    report = clearformer.train(
        images=images,
        model="autoencoder",
        out=run,
        settings=[f"{key}={value}" for key, value in settings.items()],
        device="cpu",
    )
    errors = {"autoencoder": report["test"]["error"], "pca": pca_error(run, given.numbers)}
    clearformer.plot("embeddings", given.out / "digits.png", model=run, images=images)
    (given.out / "errors.json").write_text(json.dumps(errors))
    return errors


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name}: {error:.4f}")
