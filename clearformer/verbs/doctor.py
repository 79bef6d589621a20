"""doctor: the devices, threads, libraries and compiler of this machine, and which fast paths are available.

    doctor()    the facts, as a dictionary for JSON
    describe()  one line per fact: `ok` and the fact, or `note`, the fact and a hint

Nothing is compiled and no tensor is created, so it is safe to call while a model is training.
"""

import os
import platform
import shutil
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from clearformer.data.workers import usable_threads
from clearformer.generation.compiled import cpp_compiler
from clearformer.generation.engine_cache import cache_folder, objection, stored
from clearformer.wording import count, listed

REQUIRED = ("numpy", "tokenizers", "safetensors", "sacrebleu", "pydantic", "matplotlib")
OPTIONAL = {
    "tensorboard": "curves in TensorBoard",
    "transformers": "comparisons with Hugging Face models",
    "ctranslate2": "--engine ctranslate2",
}
GB = 1e9


def doctor() -> dict[str, Any]:
    """Return the facts, grouped by component. A value is None if the platform does not report it."""
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
            "compiler": cpp_compiler(),
            "python_headers": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
            "triton": find_spec("triton") is not None,
        },
        "engines": examine_engines(),
        "packages": {name: installed(name) for name in (*REQUIRED, *OPTIONAL)},
    }


def examine_engines() -> dict[str, Any]:
    """Describe the cache of engines: its folder, why it is refused if so, and the engines in it by their names."""
    folder = cache_folder()
    names = [str(facts.get("engine")) for facts in stored()]
    return {
        "folder": str(folder),
        "refused": objection(folder) if folder.is_dir() else None,
        "stored": {name: names.count(name) for name in ("compiled", "ctranslate2")},
    }


def examine_cpu() -> dict[str, Any]:
    """Describe the processor: its name, the threads that this process may use, and the threads that torch uses."""
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


def examine_cuda() -> dict[str, Any]:
    """Describe the GPUs. `trouble` is the driver's message if torch is built for GPUs but finds none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "built_for": torch.version.cuda or torch.version.hip,
        "trouble": str(caught[0].message).splitlines()[0] if caught else None,
        "devices": [describe_device(torch.cuda.get_device_properties(index)) for index in range(n_devices)],
    }


def describe_device(properties: Any) -> dict[str, Any]:
    """Describe one GPU. Hardware bfloat16 needs compute capability 8.0 (NVIDIA Ampere) or later."""
    return {
        "name": properties.name,
        "memory_gb": properties.total_memory / GB,
        "capability": f"{properties.major}.{properties.minor}",
        "bf16": properties.major >= 8,
    }


def total_memory() -> float | None:
    """Return the memory of the machine in GB."""
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
    """Write the report as text, one line per fact."""
    return [f"ok    {fact}" if hint is None else f"note  {fact}; {hint}" for fact, hint in findings(report)]


def findings(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield pairs of a fact and a hint; the hint is None where nothing needs to be done."""
    yield f"Python {report['python']}, torch {report['torch']} on {report['system']}", None
    yield from cpu_findings(report["cpu"])
    if report["memory_gb"] is not None:
        yield f"{report['memory_gb']:.1f} GB of memory", None
    low = report["disk_free_gb"] < 5
    hint = "checkpoints may not fit: free some space" if low else None
    yield f"{report['disk_free_gb']:.0f} GB of free disk space in this folder", hint
    yield from device_findings(report)
    yield from compile_findings(report["compile"], bool(report["cuda"]["devices"]))
    yield from engine_findings(report["engines"])
    yield from package_findings(report["packages"])


def cpu_findings(cpu: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    slow = cpu["vector"] in ("DEFAULT", "NO AVX")
    yield f"CPU {cpu['model']}, vector instructions {cpu['vector']}", "a CPU with AVX2 is faster" if slow else None

    threads, cores = cpu["torch_threads"], min(cpu["physical_cores"] or cpu["usable_threads"], cpu["usable_threads"])
    fact = f"torch uses {count(threads, 'thread')} for {count(cores, 'usable core')}"
    if threads == cores:
        yield fact, None
    elif cpu["omp_num_threads"] is not None:
        yield (
            f"{fact}, OMP_NUM_THREADS is {cpu['omp_num_threads']}",
            f"set OMP_NUM_THREADS={cores} to use every core once",
        )
    else:
        yield fact, f"setting OMP_NUM_THREADS={cores} may be faster"

    names = {"mkl": "MKL", "onednn": "oneDNN", "openmp": "OpenMP"}
    on, off = ([name for key, name in names.items() if cpu[key] is state] for state in (True, False))
    hint = f"without {listed(off)}, as on ARM machines, matrix products may be slower" if off else None
    yield f"CPU libraries: {', '.join(on) or 'none'}", hint


def device_findings(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    cuda = report["cuda"]
    for device in cuda["devices"]:
        fact = f"GPU {device['name']}, {device['memory_gb']:.0f} GB, compute capability {device['capability']}"
        yield fact, None if device["bf16"] else "it has no bfloat16; train with --set train.precision=float32"
    if cuda["devices"]:
        kernels = [name for name, is_on in report["attention"].items() if is_on]
        hint = None if "flash" in kernels else "torch.backends.cuda.enable_flash_sdp(True) enables the fastest"
        yield f"attention kernels: {', '.join(kernels) or 'no fused kernels'}", hint
    elif report["mps"]:
        yield "Apple GPU (MPS)", None
    elif cuda["built_for"]:
        yield "no GPU, although torch is built for GPUs", cuda["trouble"] or "check the driver with nvidia-smi"
    else:
        yield "no GPU; torch is built for the CPU only", "for an NVIDIA GPU, install the CUDA build of torch"


def compile_findings(tools: Mapping[str, Any], has_gpu: bool) -> Iterator[tuple[str, str | None]]:
    """Check torch.compile, which needs a C++ compiler and the Python headers for the CPU, and Triton for a GPU."""
    requirements = {
        "a C++ compiler, such as g++": tools["compiler"],
        "the Python headers (python3-dev)": tools["python_headers"],
        "triton": tools["triton"] or not has_gpu,
    }
    missing = [name for name, is_installed in requirements.items() if not is_installed]
    if missing:
        yield "torch.compile is not available", f"install {listed(missing)}"
    else:
        yield f"torch.compile is available, with {tools['compiler']}", None


def engine_findings(engines: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    compiled, converted = engines["stored"]["compiled"], engines["stored"]["ctranslate2"]
    fact = f"{count(compiled, 'compiled engine')} and {count(converted, 'CTranslate2 model')} in {engines['folder']}"
    yield fact, None if engines["refused"] is None else f"they are not used: {engines['refused']}"


def package_findings(packages: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    yield ", ".join(f"{name} {number}" for name, number in packages.items() if number), None
    for name, purpose in OPTIONAL.items():
        if packages[name] is None:
            yield f"{name} is not installed", f"pip install {name} for {purpose}"
    for name in REQUIRED:
        if packages[name] is None:
            yield f"{name} is missing", f"pip install {name}"
