"""Devices, for programs that come from PyTorch: there is one, and naming it has no effect."""

from typing import Any

from .errors import ArgumentError

_NAMES = ("cpu", "cuda", "mps", "gpu", "xpu")


def is_device(given: Any) -> bool:
    """Say whether something names a device, rather than a dtype."""
    return (isinstance(given, str) or type(given).__name__ == "device") and _kind(given) in _NAMES


def check_device(caller: str, device: Any) -> None:
    """Raise if a device is not the one that there is; None is none in particular."""
    if device is not None and _kind(device) != "cpu":
        raise ArgumentError(f'{caller}: there is no device {str(device)!r}; numtape computes on "cpu".')


def _kind(device: Any) -> str:
    return str(device).partition(":")[0]
