"""fp16 and bf16: torch's numbers bit by bit, and their outputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compress import ArtifactRuntime, CompressorChain, TorchScript
from compress.graphs.policy_graph import stored_as_float32
from compress.methods.quantizer import Quantizer, to_bfloat16, to_float16
from compress.runtimes import torch_runtime
from tests.support.acting import Acting
from tests.support.contexts import context_of
from tests.support.random_policies import reference_parameters


def finite_floats():
    """float32 numbers of every exponent, and those next to where bfloat16 rounds the other way."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, np.uint32)
    upper = rng.integers(0, 2**16, 5_000, np.uint32) << 16
    edges = [upper | lower for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    numbers = np.concatenate([bits, *edges]).astype(np.uint32).view(np.float32)
    return numbers[np.isfinite(numbers)]


def test_bfloat16_is_torchs_bit_by_bit() -> None:
    numbers = finite_floats()
    as_torch = torch.from_numpy(numbers).bfloat16()
    in_range = torch.isfinite(as_torch).numpy()
    expected = as_torch.view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(to_bfloat16(numbers)[in_range], expected[in_range])
    # torch's infinities become the largest number of that sign
    assert (~in_range).any()
    largest = stored_as_float32(to_bfloat16(numbers)[~in_range])
    np.testing.assert_array_equal(np.abs(largest), torch.finfo(torch.bfloat16).max)
    np.testing.assert_array_equal(np.sign(largest), np.sign(numbers[~in_range]))


def test_bfloat16_keeps_shapes_and_takes_any_memory_order() -> None:
    numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7
    expected = torch.tensor(numbers).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(to_bfloat16(np.asfortranarray(numbers)), expected)
    np.testing.assert_array_equal(to_bfloat16(numbers[:, ::-1]), expected[:, ::-1])
    assert to_bfloat16(np.array(1.5, np.float32)).shape == ()


def test_float16_is_torchs_within_its_range_and_its_largest_number_beyond() -> None:
    numbers = finite_floats()
    as_torch = torch.from_numpy(numbers).half().numpy()
    in_range = np.abs(numbers) <= 65504
    result = to_float16(numbers)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result[in_range], as_torch[in_range])
    beyond = numbers[~in_range]
    np.testing.assert_array_equal(result[~in_range], np.sign(beyond) * np.float16(65504))


@pytest.mark.parametrize("hardware", [True, False])
@pytest.mark.parametrize("runtime", ["torch", "torchscript"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_torch_computes_in_halves_only_where_the_processor_has_them(
    small, monkeypatch, precision, runtime, hardware
) -> None:
    monkeypatch.setattr(torch_runtime, "cpu_has", lambda half: (half == precision) is hardware)
    policy, observations = small.policy(small.images), small.observations(small.images, 16)
    chain = CompressorChain().add(Quantizer(precision))
    if runtime == "torchscript":
        chain.add(TorchScript())
    artifact = chain.compress(policy, context_of(observations))
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    rounded = {n: torch.tensor(t).to(dtype).float().numpy() for n, t in policy.tensors.items()}
    acting = Acting(ArtifactRuntime(small.images))
    acting.load(artifact)
    error = np.abs(
        acting.parameters(observations) - reference_parameters(small.images, rounded, observations)
    ).max()
    # in halves each activation is rounded, to 11 bits or to 8; in fp32 none is
    least, most = (1e-4, 0.05) if hardware else (0.0, 2e-5)
    assert least <= error <= most
