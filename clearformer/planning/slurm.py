"""The batch file that trains on a Slurm cluster: torchrun on each node, and a signal before the time is up."""

import shlex
from math import ceil
from pathlib import Path

from clearformer.errors import ConfigError
from clearformer.planning.estimate import Estimate
from clearformer.wording import count

PER_NODE = 8  # GPUs
GRACE = 300  # seconds between the signal and the end: enough for a step, a validation and a checkpoint
REST = 20  # of these seconds, after which torchrun has ended by itself
MARGIN = 1.3  # of the time limit over the estimate

TEMPLATE = """#!/bin/bash
#SBATCH --job-name=clearformer
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
{gpus}#SBATCH --time={time}
#SBATCH --signal=TERM@{grace}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

# {memory} per process and {hours} in all are estimates of `clearformer plan`.
# The same file, submitted again, continues the run: train.resume. With other settings, the run is refused.
set -euo pipefail
arguments=({arguments} --out {out})
# torchrun passes SIGTERM on, and kills the processes after these seconds: until then, they save a checkpoint.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT={shutdown}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun torchrun --nnodes="$SLURM_NNODES" --nproc-per-node={per_node} --max-restarts=3 \\
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:29500" \\
  -m clearformer train "${{arguments[@]}}"
"""


def divide(n_devices: int) -> tuple[int, int]:
    """Return the number of nodes, and of GPUs on each of them; every node has the same number."""
    nodes = ceil(n_devices / PER_NODE)
    if n_devices % nodes:
        fewer = next(n for n in range(n_devices - 1, 0, -1) if n % ceil(n / PER_NODE) == 0)
        more = next(n for n in range(n_devices + 1, 2 * n_devices) if n % ceil(n / PER_NODE) == 0)
        raise ConfigError(
            f"{count(n_devices, 'GPU')} cannot be divided equally over {count(nodes, 'node')} of {PER_NODE} at most",
            f"give --gpus {fewer}, or --gpus {more}",
        )
    return nodes, n_devices // nodes


def batch_file(estimate: Estimate, arguments: list[str], out: Path) -> str:
    """Return the text of a batch file that runs `train` with these arguments."""
    target = estimate.target
    nodes, per_node = divide(target.n_devices)
    if not any("train.resume" in argument for argument in arguments):
        arguments = [*arguments, "--set", "train.resume=always"]
    return TEMPLATE.format(
        nodes=nodes,
        per_node=per_node,
        gpus=f"#SBATCH --gpus-per-node={per_node}\n" if target.device.is_gpu else "",
        time=duration(estimate.hours * MARGIN + GRACE / 3600),
        grace=GRACE,
        shutdown=GRACE - REST,
        memory=f"{estimate.peak / 1e9:.3g} GB",
        hours=f"{estimate.hours:.3g} h",
        arguments=shlex.join(arguments),
        out=shlex.quote(str(out)),
    )


def duration(hours: float) -> str:
    """Hours in the form of --time, rounded up to ten minutes: 1-02:30:00."""
    minutes = 10 * ceil(hours * 6)
    days, minutes = divmod(minutes, 24 * 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"{days}-{clock}" if days else clock
