"""What holds for every test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from services.monitor.run_clock import STARTED_AT_VARIABLE

# No clock decides over a test: machines are slow at times. And the examples are the same every
# time, so that a change is judged by what it changes.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")


@pytest.fixture(autouse=True)
def _no_command_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    # a command that an earlier test called in this process leaves its start in the environment
    monkeypatch.delenv(STARTED_AT_VARIABLE, raising=False)


@pytest.fixture(autouse=True)
def _small_numbers_stay() -> Iterator[None]:
    yield
    if "torch" in sys.modules:  # a trainer in this process has had them flushed to 0
        sys.modules["torch"].set_flush_denormal(False)


def _reference_resnet(tensors, images):
    """Logits and values of IMPALA's deep network in float64, written from figure 3 of its paper.

    How many sections and blocks there are follows from the tensors' names. Independent of torch:
    an output is a sum, or the largest, of nine shifted copies of its input.
    """

    def shifted(x, stride, outside):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=outside)
        height, width = x.shape[2:]
        for i in range(3):
            for j in range(3):
                yield i, j, padded[:, :, i : i + height : stride, j : j + width : stride]

    def convolve(name, x):
        weight = tensors[f"{name}.weight"].astype(np.float64)
        total = np.zeros((len(x), len(weight), *x.shape[2:]))
        for i, j, copy in shifted(x, 1, 0.0):
            total += np.einsum("nchw,oc->nohw", copy, weight[:, :, i, j])
        return total + tensors[f"{name}.bias"].astype(np.float64)[:, None, None]

    def dense(name, x):
        return x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors[f"{name}.bias"]

    def relu(x):
        return np.maximum(x, 0.0)

    x, i = images / 255.0, 0
    while f"sections.{i}.convolution.weight" in tensors:
        x = convolve(f"sections.{i}.convolution", x)
        x = np.maximum.reduce([copy for _, _, copy in shifted(x, 2, -np.inf)])
        j = 0
        while f"sections.{i}.blocks.{j}.first.weight" in tensors:
            block = f"sections.{i}.blocks.{j}"
            x = x + convolve(f"{block}.second", relu(convolve(f"{block}.first", relu(x))))
            j += 1
        i += 1
    x = relu(dense("hidden.0", relu(x).reshape(len(x), -1)))
    return dense("policy", x), dense("value", x)[:, 0]


@pytest.fixture(scope="session")
def reference_resnet() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """What `impala-resnet` and its like compute: a function of tensors and uint8 images."""
    return _reference_resnet
