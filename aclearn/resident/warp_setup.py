"""NVIDIA Warp, quiet and with a stated folder for its compiled kernels."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from aclearn.errors import ConfigError
from aclearn.files import user_cache

#: Environment variable with the folder of compiled kernels.
KERNEL_CACHE_VARIABLE = "ACLEARN_KERNEL_CACHE"


def kernel_cache() -> Path:
    """The folder of compiled kernels: `$ACLEARN_KERNEL_CACHE`, else ~/.cache/aclearn/kernels."""
    stated = os.environ.get(KERNEL_CACHE_VARIABLE)
    if stated:
        return Path(stated)
    return user_cache() / "kernels"


def import_warp() -> Any:
    """The module `warp`; its first import sets the cache and silences what is no error.

    Raises:
        ConfigError: Warp is not installed; says which extra has it.
    """
    try:
        warp: Any = importlib.import_module("warp")
    except ModuleNotFoundError as error:
        if error.name != "warp":
            raise
        raise ConfigError(
            "resident environments need NVIDIA Warp, which is not installed; "
            'install it with pip install "aclearn[resident]"'
        ) from error
    # before `init`, which prints a banner and a warning on machines without a GPU
    warp.config.log_level = warp.LOG_ERROR
    warp.config.kernel_cache_dir = str(kernel_cache())
    warp.init()
    return warp


wp = import_warp()
