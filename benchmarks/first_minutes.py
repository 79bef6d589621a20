"""How long `make demo` or `make studio` takes in an empty clone, installation included.

python benchmarks/first_minutes.py               until the demo has ended; and the BLEU that its model reaches
python benchmarks/first_minutes.py --studio      until a translation is on the screen of Chromium
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from provenance import RESULTS, record, stamp

TEXT, TRANSLATION = "Where is the station?", "Où est la gare ?"


def timed(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


def demo(folder: str) -> dict[str, Any]:
    begun = time.monotonic()
    done = subprocess.run(["make", "demo"], cwd=folder, check=True, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    helped = min(timed([f"{folder}/.venv/bin/clearformer", "--help"]) for _ in range(5))
    scores = {title: float(value) for value, title in re.findall(r"^BLEU +([\d.]+)  (.+)$", done.stdout, re.MULTILINE)}
    bleu = dict(zip(("random_split", "unseen_combinations", "one_clause_deeper", "dictionary"), scores.values()))
    what = {"what": "make demo in an empty clone", "seconds": round(seconds), "help_seconds": round(helped, 2)}
    return {**what, "bleu": bleu, **stamp("make demo")}


def studio(folder: str) -> dict[str, Any]:
    """Open the URL that `make studio` prints, where a user's browser opens by itself, and wait for the translation."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    begun = time.monotonic()
    environment = {**os.environ, "BROWSER": "true"}  # the command that is called with the URL
    server = subprocess.Popen(
        ["make", "studio"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stdout is not None
    try:
        url = next(line.strip() for line in server.stdout if line.startswith("http"))
        printed = time.monotonic() - begun
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"{url}#/translate?text={quote(TEXT)}")
            page.get_by_text(TRANSLATION).first.wait_for(timeout=60_000)
            seconds, version = time.monotonic() - begun, browser.version
    finally:
        os.killpg(server.pid, signal.SIGINT)
        server.wait(30)
    what = {"what": "make studio in an empty clone", "seconds": round(seconds), "seconds_to_url": round(printed)}
    return {**what, **stamp("make studio", chromium=version)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studio", action="store_true", help="measure `make studio` instead of `make demo`")
    parser.add_argument("--out", type=Path, help="a file in results/ by default")
    arguments = parser.parse_args()
    measure, name = (studio, "first-studio") if arguments.studio else (demo, "first-minutes")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(RESULTS.parent.parent), folder], check=True)
        result = measure(folder)
    record(result, arguments.out or RESULTS / f"{name}.json")


if __name__ == "__main__":
    main()
