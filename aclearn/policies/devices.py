"""Devices and mixed precision of the machine."""

from __future__ import annotations

import contextlib
import logging
from typing import Literal

import torch

from aclearn.errors import ConfigError

_LOGGER = logging.getLogger(__name__)


def choose_device(name: str, *, key: str = "trainer.device") -> torch.device:
    """The device of `auto | cpu | cuda | cuda:N`; auto is the first GPU, else the CPU.

    Raises:
        ConfigError: the GPU does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            there = ", ".join(f"cuda:{index}" for index in range(count))
            if count == 0 and torch.version.cuda is None:
                there = f"torch {torch.__version__} is built without CUDA"
            raise ConfigError(
                f"{key}: {name} is not there: torch sees {count} CUDA devices"
                f"{f' ({there})' if there else ''}; use {key}: auto or cpu"
            )
    return device


def cpu_has(half: Literal["bf16", "fp16"]) -> bool:
    """Whether the CPU multiplies this format in hardware; emulated bf16 is ten times slower."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get(f"avx512_{half}") or capabilities.get(f"amx_{half}"))


def choose_amp(name: str, device: torch.device, *, pays: bool = True) -> torch.dtype | None:
    """The autocast dtype of `auto | off | bf16` on a device, None for fp32.

    auto is on if it pays and the hardware has bf16: a GPU, or a CPU with AVX-512 BF16 or AMX.

    Args:
        pays: whether auto may be on, as `halves_pay` says.
    """
    if name == "off" or (name == "auto" and not pays):
        return None
    if name == "auto" and device.type == "cuda":
        # the query is about the current device, which need not be this one
        named = device.index is not None
        with torch.cuda.device(device) if named else contextlib.nullcontext():
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bf16 else None
    if device.type == "cpu" and not cpu_has("bf16"):
        if name == "auto":
            return None
        _LOGGER.warning("trainer.amp: this CPU emulates bf16, ten times as slow as fp32 (off)")
    return torch.bfloat16
