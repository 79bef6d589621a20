"""How long the studio takes: from a click on a head to the new picture, and from the server to the first paint.

    python benchmarks/studio.py [--clicks 30] [--paints 10] [--out FILE]

The picture has a source and a translation of 128 tokens each, all layers and heads of the bundled translator: the model
reads both (teacher forcing), the browser reads the patterns and draws them. The new translation streams in afterwards;
here the page is given a translation of 128 tokens, since the bundled model writes shorter ones. Each click switches
another head of the encoder or the decoder, while a 128 × 128 pattern of the encoder is shown.

Measured in Chromium by the page itself (performance.measure), from the click until the frame with the picture is
painted; `request_ms` is the part between the request and the last byte of the answer. Before each click this script
times a forward pass alone, without lens, server and browser, and `redraw_per_forward` is the median of the ratios.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from playwright.sync_api import sync_playwright
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.lens.reading import Reading, read

TOKENS, UNCOUNTED = 128, 3
SOURCE = "The old man who lives near the river sees a dog and a cat in the garden of the house ."
TARGET = "Le vieil homme qui habite près de la rivière voit un chien et un chat dans le jardin de la maison ."
HEADS = [f"encoder.blocks.{layer}.attn[{head}]" for layer in range(4) for head in range(4)]
HEADS += [f"decoder.blocks.{layer}.cross[{head}]" for layer in range(3) for head in range(4)]
GIVE_TRANSLATION = """
const { fetch } = window, end = { translation: %s, logprob: 0 };
window.fetch = (path, options) => path !== "/v1/translate" ? fetch(path, options)
  : Promise.resolve(new Response(JSON.parse(options.body).stream
    ? `event: end\\ndata: ${JSON.stringify(end)}\\n\\n` : JSON.stringify({ translations: [end] })));
"""
CLICK = """
name => new Promise((done) => {
  new PerformanceObserver((list, observer) => {
    const [entry] = list.getEntriesByName("redraw");
    if (!entry) return;
    observer.disconnect();
    const requests = performance.getEntriesByType("resource").filter((one) => one.name.endsWith("/api/activations"));
    const { responseEnd, startTime } = requests.at(-1);
    performance.clearResourceTimings();
    done([entry.duration, responseEnd - startTime]);
  }).observe({ entryTypes: ["measure"] });
  document.querySelector(`[data-head="${name}"]`).click();
})
"""


def long_text(encode: Any, sentence: str) -> str:
    """Return a text of exactly 128 tokens, the special token at its end or beginning included."""
    text, words = "", sentence.split()
    for i in range(10 * TOKENS):
        longer = f"{text} {words[i % len(words)]}".strip()
        if len(encode([longer])[0]) + 1 > TOKENS:
            break
        text = longer
    while len(encode([text])[0]) + 1 < TOKENS:
        text += " ."
    return text


def forward_ms(reading: Reading) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        reading.compute(reading.batch)
    return 1000 * (time.perf_counter() - start)


def click_heads(page: Any, url: str, text: str, reading: Reading, n: int) -> list[tuple[float, float, float]]:
    """Return for each click the milliseconds of a forward pass before it, of the redraw, and of its request.

    The first pictures, which compile the page's code, are not counted.
    """
    page.goto(f"{url}#/translate")
    page.evaluate(
        """text => { history.replaceState(null, "", `#/translate?${text}`);
                     dispatchEvent(new HashChangeEvent("hashchange")) }""",
        urlencode({"layer": "encoder.blocks.3.attn", "text": text}),
    )
    page.get_by_role("heading", name="Encoder 3, head 0").wait_for(timeout=120_000)
    rows = []
    for i in range(n + UNCOUNTED):
        page.wait_for_timeout(200)  # until what follows a redraw has ended
        forward = forward_ms(reading)
        redraw, request = page.evaluate(CLICK, HEADS[(5 * i) % len(HEADS)])
        rows.append((forward, redraw, request))
    return rows[UNCOUNTED:]


def first_paint_ms(browser: Any, url: str, options: dict[str, Any]) -> float:
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    milliseconds: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    context.close()
    return milliseconds


def summary(values: list[float]) -> dict[str, float]:
    p90 = statistics.quantiles(values, n=10)[-1] if len(values) > 1 else values[0]
    return {"median": round(statistics.median(values), 1), "p90": round(p90, 1), "worst": round(max(values), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clicks", type=int, default=30)
    parser.add_argument("--paints", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "studio.json")
    given = parser.parse_args()
    handle = clearformer.load()
    text = long_text(handle.encode_sources, SOURCE)
    target = long_text(lambda texts: handle.encode(handle.target_tokenizer, texts), TARGET)
    reading = read(handle, text, target)
    torch.set_num_threads(1)  # as the server does for a model of this size
    command = [sys.executable, "-m", "clearformer", "studio", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            # The policy of the page refuses scripts from outside, such as this one.
            options: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "bypass_csp": True}
            first = first_paint_ms(browser, url, options)
            page = browser.new_context(**options).new_page()
            page.add_init_script(GIVE_TRANSLATION % json.dumps(target))
            rows = click_heads(page, url, text, reading, given.clicks)
            n_target = page.evaluate("document.querySelectorAll('.token').length")
            page.context.close()
            paints = [first_paint_ms(browser, url, options) for _ in range(given.paints)]
            version = browser.version
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    forward, redraw, request = ([row[i] for row in rows] for i in range(3))
    result = {
        **stamp("python benchmarks/studio.py", chromium=version),
        "cores": os.cpu_count(),
        "source_tokens": len(reading.source or []),
        "target_tokens": n_target,
        "clicks": given.clicks,
        "forward_ms": summary(forward),
        "redraw_ms": summary(redraw),
        "request_ms": summary(request),
        "drawing_ms": summary([all_of_it - part for all_of_it, part in zip(redraw, request)]),
        "redraw_per_forward": round(statistics.median(a / b for a, b in zip(redraw, forward)), 2),
        "first_paint_ms": {"after_start": round(first, 1), **summary(paints)},
    }
    record(result, given.out)


if __name__ == "__main__":
    main()
