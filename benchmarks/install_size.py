"""The disk space of an installation, without torch.

    python benchmarks/install_size.py VENV [--out FILE]

Adds the sizes of all packages in a virtual environment, except torch, the dependencies of torch that nothing else
needs, and the tools that every virtual environment contains.
"""

import argparse
from importlib.metadata import Distribution, distributions
from pathlib import Path

from provenance import record, stamp

TORCH = {"torch", "filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing-extensions"}
TOOLS = {"pip", "setuptools", "wheel"}


def name_of(package: Distribution) -> str:
    return package.metadata["Name"].lower().replace("_", "-")


def size_of(package: Distribution) -> int:
    files = [Path(package.locate_file(file)) for file in package.files or ()]
    return sum(file.stat().st_size for file in files if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    site = next(arguments.venv.glob("lib/python3*/site-packages"))
    sizes = {name_of(package): size_of(package) / 1e6 for package in distributions(path=[str(site)])}
    counted = {name: size for name, size in sizes.items() if name not in TORCH | TOOLS and "nvidia" not in name}
    for name, size in sorted(counted.items(), key=lambda item: -item[1]):
        print(f"{size:8.1f} MB  {name}")
    print(f"{sum(counted.values()):8.1f} MB  in total, without torch")
    if arguments.out:
        rounded = {name: round(size, 1) for name, size in sorted(counted.items(), key=lambda item: -item[1])}
        total = round(sum(counted.values()), 1)
        provenance = stamp("python benchmarks/install_size.py VENV")
        record({"megabytes": total, "packages": rounded, **provenance}, arguments.out)


if __name__ == "__main__":
    main()
