"""Screenshots of the studio: one of each page in docs/images/; with --all, all light and dark, desktop and phone.

python -m docs.screenshots [--all] [--runs FOLDER] [--out FOLDER]

Small models of every kind are trained first, in about a minute, by the functions of the tests. --runs names a folder
that has them from an earlier call, or will have them.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import clearformer
from tests.serve.media_models import write_media
from tests.text_runs import SETTINGS, train_language_model

TEXT, BLANK, REVIEW = "The cat eats the mouse.", "the man ___ a cart", "the fine film about a house with dull music"
PAGES = {
    "translate": (f"translate?text={TEXT}", ".heads .show"),
    "lines": (f"translate?text={TEXT}&view=lines", ".link"),
    "beam": (f"translate?text={TEXT}&search=beam", ".tree"),
    "language": (f"language?model=runs/play&text=the king&top_p=0.95&blank={BLANK}", ".blanks .ranked"),
    "inside": (f"inside?text={TEXT}&cell=1,1", ".cellpanel dl"),
    "inside-cnn": ("inside?model=runs/media/stripes&name=stages.1.0.out&head=3&cell=2,4", ".cellpanel dl"),
    "inside-speech": ("inside?model=runs/media/tones&cell=6,5", ".cellpanel dl"),
    "walk": (f"inside?text={TEXT}&view=walk&step=10", ".walk .figure canvas"),
    "embeddings": ("embeddings?view=3d", ".point"),
    "positions": ("positions?k=3", ".shift .label"),
    "classify": (f"classify?model=runs/media/reviews&text={REVIEW}", ".shade"),
    "tags": ("classify?model=runs/media/tags&text=the fine film&word=1", ".shade"),
    "images": ("images?model=runs/media/stripes", ".features image"),
    "speech": ("speech?model=runs/media/tones&at=0.4", ".hearing"),
    "training": ("training?run=fast|slow", ".ridge"),
    "compare": ("compare?a=runs/play&b=runs/lora&text=the king saw the", ".threefigures .label"),
}
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
DARK = ("inside", "training")
DOCS = [(name, "light", "desktop") for name in PAGES if name not in (*DARK, "lines", "inside-speech", "tags")]
DOCS += [(name, "dark", "desktop") for name in (*DARK, "translate")]
DOCS += [("translate", "dark", "phone"), ("language", "light", "phone")]
EVERY = [(name, scheme, size) for scheme in ("light", "dark") for size in SIZES for name in PAGES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every page, light and dark, desktop and phone")
    parser.add_argument("--runs", type=Path, help="folder of the models; a temporary one by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        runs: Path = given.runs or Path(temporary)
        if not (runs / "slow").exists():
            write_models(runs)
        with served(runs) as url, sync_playwright() as driver:
            path = os.environ.get("CHROMIUM") or shutil.which("chromium")
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for name, scheme, size in EVERY if given.all else DOCS:
                print(take(browser, url, name, scheme, size, given.out))
            browser.close()


def write_models(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_media(folder / "media")
    labels = folder / "media-data" / "reviews.tsv"
    clearformer.evaluate(folder / "media" / "reviews", labels=labels, calibrate=True, device="cpu")
    train_language_model(folder)
    often = ["train.histograms=true", "train.log_every=1", "train.validate_every=5", "evaluate.max_validation=3"]
    for name, rate in (("fast", 0.02), ("slow", 0.003)):
        settings = [*SETTINGS, *often, f"optim.lr={rate}"]
        clearformer.train(text=folder / "play.txt", out=folder / name, settings=settings, device="cpu")


@contextmanager
def served(runs: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "clearformer", "studio", "--no-open", "--runs", str(runs)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


def take(browser: Any, url: str, name: str, scheme: str, size: str, out: Path) -> Path:
    """Write a picture of a page, of 256 colours. A picture of a phone shows what fits on its screen."""
    (width, height), (route, drawn) = SIZES[size], PAGES[name]
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(f"{url}#/{route}")
    page.locator(drawn).first.wait_for(state="attached")
    page.wait_for_timeout(1500)  # the translation has streamed in, the curves are drawn
    file = out / f"studio-{name}-{scheme}-{size}.png"
    page.screenshot(path=file, full_page=size == "desktop")
    context.close()
    Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


if __name__ == "__main__":
    main()
