"""The devices that `plan` knows, as data, and this machine, as measured."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from clearformer.errors import ConfigError, suggest

HERE = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Device:
    """A kind of device. Memory in GB of 10⁹ bytes; rates of realistic work, not of the data sheet."""

    name: str
    title: str
    memory_gb: float
    memory_gb_per_s: float
    matmul_tflops: float
    launch_us: float
    link_gb_per_s: float = 0.0
    process_mb: float = 700.0
    """What a process needs before its first tensor: on a GPU, what CUDA, cuBLAS and cuDNN take for themselves."""

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"


@cache
def known_devices() -> dict[str, Device]:
    text = files("clearformer.planning").joinpath("devices.toml").read_text(encoding="utf-8")
    return {name: Device(name, **facts) for name, facts in tomllib.loads(text).items()}


def find_device(name: str) -> Device:
    """Return a device by its name in devices.toml."""
    if (device := known_devices().get(name.lower())) is None:
        choices = [*HERE, *known_devices()]
        raise ConfigError(f"--device {name}: unknown device", f"{suggest(name, choices)}; known: {', '.join(choices)}")
    return device
