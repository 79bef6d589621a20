"""Screenshots of the studio, light and dark, desktop and phone, in docs/images/.

python docs/screenshots.py [--runs FOLDER] [--out FOLDER]
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PAGES = {
    "translate": ("translate?text=The cat eats the mouse.", ".heads .show"),
    "lines": ("translate?text=The cat eats the mouse.&view=lines", ".link"),
    "inside": ("inside?cell=1,1", ".cellpanel dl"),
    "training": ("training", "main h1"),
    "language": ("language?text=The king&temperature=0.8&top_p=0.95", ".nomodel, .rivals .ranked"),
    "compare": ("compare", ".nomodel, .compared-layers .ranked, .problem"),
    "embeddings": ("embeddings?view=3d", ".point"),
    "positions": ("positions?k=3", ".shift .label"),
}
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder with run folders, for the page on training")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    given = parser.parse_args()
    runs = ["--runs", str(given.runs)] if given.runs else []
    server = subprocess.Popen(
        [sys.executable, "-m", "clearformer", "studio", "--no-open", *runs], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as driver:
            path = os.environ.get("CHROMIUM") or shutil.which("chromium")
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                for size, (width, height) in SIZES.items():
                    viewport = {"width": width, "height": height}
                    page = browser.new_context(color_scheme=scheme, viewport=viewport).new_page()
                    for name, (route, drawn) in PAGES.items():
                        page.goto(f"{url}#/{route}")
                        page.locator(drawn).first.wait_for(state="attached")
                        page.wait_for_timeout(1500)  # the translation has streamed in, the curves are drawn
                        file = given.out / f"studio-{name}-{scheme}-{size}.png"
                        page.screenshot(path=file, full_page=size == "desktop")
                        print(file)
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


if __name__ == "__main__":
    main()
