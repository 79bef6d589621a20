"""Compress handwritten digits to eight values: a convolutional autoencoder and PCA, in a minute on two cores.

    python examples/digits_autoencoder.py                       # scikit-learn's digits, 8×8: pip install scikit-learn
    python examples/digits_autoencoder.py --images photos/      # or your images, as for `clearformer train`

Writes OUT/digits.png, with some digits, their reconstructions and their codes on a plane, and OUT/errors.json, with the
mean of (x̂ − x)² over test digits, where pixels are scaled to a standard deviation of 1.
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
    """Write 1,797 digits of 8×8 pixels, with grey values scaled from 0 … 16 to 0 … 255."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise SystemExit("scikit-learn is not installed: pip install scikit-learn, or use --images") from None
    digits = load_digits()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=(digits.images * 255 / 16).round().astype("uint8"), labels=digits.target)
    return path


def pca_error(run: Path, d_code: int) -> float:
    """The error of PCA on the test images; PCA is fitted to the training images of the autoencoder."""
    train, test = (ImageStore(run / "data" / f"{split}.safetensors") for split in ("train", "test"))
    points, others = (torch.from_numpy(store.pixels / 255.0).flatten(2).flatten(1) for store in (train, test))
    pca = fit_pca(points, d_code)
    residual = (pca.reconstruct(pca.transform(others)) - others).view(len(others), len(train.std), -1)
    return float((residual / torch.tensor(train.std)[:, None]).square().mean())


def main() -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="images to learn from; default: scikit-learn's digits")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"))
    parser.add_argument("--numbers", type=int, default=8, help="length of a code; 2 for a map")
    parser.add_argument("--steps", type=int, default=1200)
    args = parser.parse_args()
    torch.set_num_threads(1)  # a second thread does not help at this size
    images, run = args.images or write_digits(args.out / "digits.npz"), args.out / "autoencoder"
    settings = {
        "model.d_code": args.numbers,
        "train.steps": args.steps,
        "train.validate_every": max(1, args.steps // 4),
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
    errors = {"autoencoder": report["test"]["error"], "pca": pca_error(run, args.numbers)}
    clearformer.plot("embeddings", args.out / "digits.png", model=run, images=images)
    (args.out / "errors.json").write_text(json.dumps(errors))
    return errors


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name}: {error:.4f}")
