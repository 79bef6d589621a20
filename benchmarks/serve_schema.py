"""Requests that schemathesis makes up from the description of the API, counted by path and status of the answer.

    python benchmarks/serve_schema.py [--cases 10000] [--out FILE]

It runs tests/serve/test_schema.py, which fails at an answer of 500 and above, at an undocumented status and at an
answer that does not match its schema. Nothing is recorded then.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from provenance import RESULTS, record, stamp

ROOT = RESULTS.parents[1]
TEST = "tests/serve/test_schema.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--out", type=Path, default=RESULTS / "serve-schema.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        options = ["-m", "schema", TEST, "--cases", str(arguments.cases), "--counts", str(counts)]
        subprocess.run([sys.executable, "-m", "pytest", "-q", *options], cwd=ROOT, check=True)
        answers = json.loads(counts.read_text(encoding="utf-8"))
    by_status = {}
    for statuses in answers.values():
        for status, n in statuses.items():
            by_status[status] = by_status.get(status, 0) + n
    record(
        {
            "cases": sum(by_status.values()),
            "violations": 0,  # otherwise the test has failed
            "by_status": dict(sorted(by_status.items())),
            "by_path": answers,
            **stamp(
                f"python benchmarks/serve_schema.py --cases {arguments.cases}", schemathesis=version("schemathesis")
            ),
        },
        arguments.out,
    )


if __name__ == "__main__":
    main()
