"""Lower precision and compiled networks give nearly the same gradient."""

from __future__ import annotations

import pytest
import torch

from aclearn.learning import GradientWorker


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference as a share of the length."""
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("kind", ["images", "residual", "flat"])
def test_a_gradient_under_bf16_is_near_that_in_fp32(make, kind) -> None:
    architecture = getattr(make, kind)
    batch = make.batch(architecture, 6, 8, seed=1)
    expected = make.gradient_of(batch, architecture)
    found = make.gradient_of(batch, architecture, amp_dtype=torch.bfloat16)
    assert found.dtype == torch.float32  # weights and gradients stay in fp32
    # bf16 has 8 bits of mantissa: 0.4 % a number, some of which add up
    assert 0.0 < relative(found, expected) < 0.05


@pytest.mark.parametrize("kind", ["images", "flat"])
def test_values_and_parameters_keep_their_digits_under_bf16(make, kind) -> None:
    network = make.learner(getattr(make, kind)).network
    observations = torch.zeros(2, *network.architecture.observation["observation"].shape)
    if network.architecture.observation["observation"].dtype == "uint8":
        observations = observations.to(torch.uint8)
    with torch.no_grad():  # only the biases are left, and bf16 would make 100.5 of the first
        network.value.bias.fill_(100.3)
        network.policy.bias.copy_(torch.linspace(9.01, 12.07, len(network.policy.bias)))
        with torch.autocast("cpu", torch.bfloat16):
            logits, values = network(observations)
    assert values.tolist() == pytest.approx([100.3, 100.3], rel=1e-6)
    torch.testing.assert_close(logits, network.policy.bias.expand(2, -1))


def _can_compile() -> bool:
    try:
        torch.compile(torch.sin)(torch.zeros(2))
    except Exception:  # no compiler, no headers, no torch.compile for this Python
        return False
    return True


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own parts
@pytest.mark.nightly  # torch.compile takes a quarter of a minute
def test_a_compiled_worker_gives_the_gradient_of_an_eager_one(make) -> None:
    if not _can_compile():
        pytest.skip("torch.compile needs a C++ compiler")
    batch = make.batch(make.flat, 5, 4, seed=4)
    learner = make.learner(make.flat)
    gradients = []
    for compiled in (False, True):
        worker = GradientWorker(
            make.flat,
            objective=make.objective(),
            device=make.cpu,
            rng=torch.Generator(),
            compiled=compiled,
        )
        worker.refresh(list(learner.network.parameters()))
        worker.differentiate(batch, batch.steps)
        gradients.append(torch.cat([g.reshape(-1) for g in worker.gradients()]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
