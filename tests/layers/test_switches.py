"""The package leaves torch's global switches to the program that imports it."""

import json
import subprocess
import sys

import clearformer

PROGRAM = """
import importlib, json, pkgutil, sys
import torch

def switches():
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        "sdp": [cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(),
                cuda.math_sdp_enabled()],
        "matmul": [torch.get_float32_matmul_precision(), cuda.matmul.allow_tf32, cudnn.allow_tf32,
                   cuda.matmul.allow_fp16_reduced_precision_reduction,
                   cuda.matmul.allow_bf16_reduced_precision_reduction],
        "deterministic": [torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark],
        "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "grad": [torch.is_grad_enabled(), torch.is_anomaly_enabled()],
        "seed": torch.initial_seed(),
    }

torch.manual_seed(7)
before, imported = switches(), []
for module in pkgutil.walk_packages([sys.argv[1]], "clearformer."):
    if module.name.rpartition(".")[2] == "__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        if (error.name or "").startswith("clearformer"):
            raise
    else:
        imported.append(module.name)
print(json.dumps({"n": len(imported), "before": before, "after": switches()}))
"""


def test_importing_every_module_changes_no_global_switch() -> None:
    command = [sys.executable, "-c", PROGRAM, *clearformer.__path__]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    told = json.loads(printed.splitlines()[-1])
    assert told["n"] > 200
    assert told["after"] == told["before"]
