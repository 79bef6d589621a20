"""What this machine has, and which fast paths are on.

    doctor()    the facts, as a dictionary that JSON can hold
    describe()  the facts as lines to read: `ok` and a fact, or `note`, a fact and what would make it faster

Nothing is compiled and no tensor is created: it is safe to run beside a training.
"""

import os
import platform
import shutil
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

import torch

NEEDED = ("numpy", "tokenizers", "safetensors", "sacrebleu", "pydantic", "matplotlib")
OPTIONAL = {"tensorboard": "curves in TensorBoard", "transformers": "comparisons with Hugging Face's models"}
GB = 1e9


def doctor() -> dict[str, Any]:
    """The facts, by part of the machine. A value is None where this platform does not report it."""
    compilers = (os.environ.get("CXX", ""), "g++", "clang++", "cl")
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "torch": str(torch.__version__),
        "cpu": examine_cpu(),
        "memory_gb": total_memory(),
        "disk_free_gb": shutil.disk_usage(Path.cwd()).free / GB,
        "cuda": examine_cuda(),
        "mps": torch.backends.mps.is_available(),
        "attention": {
            "flash": torch.backends.cuda.flash_sdp_enabled(),
            "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        },
        "compile": {
            "compiler": next(filter(None, map(shutil.which, compilers)), None),
            "python_headers": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
            "triton": find_spec("triton") is not None,
        },
        "packages": {name: installed(name) for name in (*NEEDED, *OPTIONAL)},
    }


def examine_cpu() -> dict[str, Any]:
    """The processor: its model, the threads that this process may use, and those that torch uses."""
    capabilities = torch.cpu.get_capabilities()
    return {
        "model": capabilities.get("cpu_name") or platform.processor() or platform.machine(),
        "physical_cores": capabilities.get("num_physical_cores"),
        "usable_threads": usable_threads(),
        "torch_threads": torch.get_num_threads(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "vector": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "onednn": torch.backends.mkldnn.is_available(),
        "openmp": torch.backends.openmp.is_available(),
    }


def usable_threads() -> int:
    """Hardware threads that this process may run on: its affinity, limited by the cgroup quota of a container."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(threads, ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no control group, or one whose quota is the word "max"
        return threads


def examine_cuda() -> dict[str, Any]:
    """The GPUs. `trouble` is the driver's message if torch was built for GPUs and there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "built_for": torch.version.cuda or torch.version.hip,
        "trouble": str(caught[0].message).splitlines()[0] if caught else None,
        "devices": [describe_device(torch.cuda.get_device_properties(index)) for index in range(n_devices)],
    }


def describe_device(properties: Any) -> dict[str, Any]:
    """One GPU. bfloat16 in hardware begins with compute capability 8.0, NVIDIA's Ampere."""
    return {
        "name": properties.name,
        "memory_gb": properties.total_memory / GB,
        "capability": f"{properties.major}.{properties.minor}",
        "bf16": properties.major >= 8,
    }


def total_memory() -> float | None:
    """The machine's memory in GB."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe(report: Mapping[str, Any]) -> list[str]:
    """One line for each finding of `doctor`."""
    return [f"ok    {fact}" if hint is None else f"note  {fact}; {hint}" for fact, hint in findings(report)]


def findings(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Pairs of a fact and, where something would make it faster or safer, a hint."""
    yield f"Python {report['python']}, torch {report['torch']} on {report['system']}", None
    yield from judge_cpu(report["cpu"])
    if report["memory_gb"] is not None:
        yield f"{report['memory_gb']:.1f} GB of memory", None
    low = report["disk_free_gb"] < 5
    yield f"{report['disk_free_gb']:.0f} GB of disk free here", "checkpoints may not fit" if low else None
    yield from judge_devices(report)
    yield from judge_compile(report["compile"], bool(report["cuda"]["devices"]))
    yield from judge_packages(report["packages"])


def judge_cpu(cpu: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    slow = cpu["vector"] in ("DEFAULT", "NO AVX")
    yield f"CPU {cpu['model']}, vector instructions {cpu['vector']}", "an AVX2 machine is faster" if slow else None

    threads, cores = cpu["torch_threads"], min(cpu["physical_cores"] or cpu["usable_threads"], cpu["usable_threads"])
    fact = f"torch uses {threads} threads for {cores} usable cores"
    if threads == cores:
        yield fact, None
    elif cpu["omp_num_threads"] is not None:
        yield f"{fact}, OMP_NUM_THREADS is {cpu['omp_num_threads']}", f"OMP_NUM_THREADS={cores} uses each core once"
    else:
        yield fact, f"OMP_NUM_THREADS={cores} may be faster"

    names = {"mkl": "MKL", "onednn": "oneDNN", "openmp": "OpenMP"}
    on, off = ([name for key, name in names.items() if cpu[key] is state] for state in (True, False))
    hint = f"without {', '.join(off)}, as on ARM machines, matrix products may be slower" if off else None
    yield f"CPU libraries: {', '.join(on) or 'none'}", hint


def judge_devices(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    cuda = report["cuda"]
    for device in cuda["devices"]:
        fact = f"GPU {device['name']}, {device['memory_gb']:.0f} GB, compute capability {device['capability']}"
        yield fact, None if device["bf16"] else "it has no bfloat16, train in float16 or float32"
    if cuda["devices"]:
        kernels = [name for name, is_on in report["attention"].items() if is_on]
        hint = None if "flash" in kernels else "torch.backends.cuda.enable_flash_sdp(True) turns the fastest on"
        yield f"attention kernels: {', '.join(kernels) or 'none fused'}", hint
    elif report["mps"]:
        yield "Apple GPU through MPS", None
    elif cuda["built_for"]:
        yield "no GPU, though torch is built for one", cuda["trouble"] or "check the driver with nvidia-smi"
    else:
        yield "no GPU, and torch is built for the CPU alone", "with an NVIDIA card, install torch's CUDA build"


def judge_compile(tools: Mapping[str, Any], has_gpu: bool) -> Iterator[tuple[str, str | None]]:
    """torch.compile generates C++ for the CPU, which needs a compiler and Python's headers, and Triton for the GPU."""
    needs = {
        "a C++ compiler, such as g++": tools["compiler"],
        "Python's headers (python3-dev)": tools["python_headers"],
        "triton": tools["triton"] or not has_gpu,
    }
    missing = [need for need, is_there in needs.items() if not is_there]
    if missing:
        yield "torch.compile cannot work here", f"install {', '.join(missing)}"
    else:
        yield f"torch.compile can work, with {tools['compiler']}", None


def judge_packages(packages: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    yield ", ".join(f"{name} {number}" for name, number in packages.items() if number), None
    for name, purpose in OPTIONAL.items():
        if packages[name] is None:
            yield f"{name} is not installed", f"pip install {name} for {purpose}"
    for name in NEEDED:
        if packages[name] is None:
            yield f"{name} is missing", f"pip install {name}"
