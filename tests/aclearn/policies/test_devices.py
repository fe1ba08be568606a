"""The learner's device and precision."""

from __future__ import annotations

import pytest
import torch

from aclearn.errors import ConfigError
from aclearn.policies.devices import choose_amp, choose_device, cpu_has

CPU = torch.device("cpu")


def test_the_cpu_is_chosen_by_name() -> None:
    assert choose_device("cpu") == CPU


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch) -> None:
    for there, expected in [(True, "cuda"), (False, "cpu")]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert choose_device("auto").type == expected


def test_a_gpu_that_is_not_there_is_refused_by_name(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    message = (
        r"trainer.device: cuda:2 is not there: torch sees 2 CUDA devices \(cuda:0, cuda:1\); "
        r"use trainer.device: auto or cpu"
    )
    with pytest.raises(ConfigError, match=message):
        choose_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"^predictor.device: cuda is not there: torch sees 0"):
        choose_device("cuda", key="predictor.device")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=r"torch \S+ is built without CUDA"):
        choose_device("cuda")


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_a_cpu_has_halves_where_one_of_its_units_multiplies_them(monkeypatch, half) -> None:
    other = "fp16" if half == "bf16" else "bf16"
    for capabilities, expected in [
        ({f"avx512_{half}": True}, True),
        ({f"amx_{half}": True}, True),
        ({f"avx512_{half}": False, f"avx512_{other}": True, f"amx_{other}": True}, False),
        ({}, False),
    ]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert cpu_has(half) is expected


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_bf16": False}, False)],
)
def test_bf16_is_automatic_only_where_the_cpu_has_it(monkeypatch, capabilities, expected) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_amp("auto", CPU) == (torch.bfloat16 if expected else None)
    assert choose_amp("bf16", CPU) == torch.bfloat16
    assert choose_amp("off", CPU) is None


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, torch.bfloat16), (False, None)])
def test_a_gpu_computes_in_bf16_where_it_has_it(monkeypatch, has_bf16, expected) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    cuda = torch.device("cuda")
    assert choose_amp("auto", cuda) == expected
    assert choose_amp("bf16", cuda) == torch.bfloat16
    assert choose_amp("off", cuda) is None
