"""Lower precision and compiled networks give nearly the same gradient."""

from __future__ import annotations

import pytest
import torch

from aclearn.learning import GradientWorker
from aclearn.learning import learner as learner_module


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
    observations = torch.zeros(2, *network.architecture.observation.sole.shape)
    if network.architecture.observation.sole.dtype == "uint8":
        observations = observations.to(torch.uint8)
    with torch.no_grad():  # only the biases are left, and bf16 would make 100.5 of the first
        network.value.bias.fill_(100.3)
        network.policy.bias.copy_(torch.linspace(9.01, 12.07, len(network.policy.bias)))
        with torch.autocast("cpu", torch.bfloat16):
            logits, values = network(observations)
    assert values.tolist() == pytest.approx([100.3, 100.3], rel=1e-6)
    torch.testing.assert_close(logits, network.policy.bias.expand(2, -1))


def test_a_loss_scale_leaves_again_before_the_step(make) -> None:
    batch = make.batch(make.images, 5, 4, seed=2)
    learner = make.learner(make.images)
    worker = learner.make_worker()
    weights = list(learner.network.parameters())
    found = []
    for scale in (1.0, 1024.0):
        worker.refresh(weights, loss_scale=scale)
        worker.differentiate(batch)
        found.append(torch.cat([g.reshape(-1) for g in worker.gradients()]))
    torch.testing.assert_close(found[1], 1024 * found[0], rtol=1e-5, atol=1e-6)


class Scaler(torch.amp.GradScaler):
    """The scaler of a learner in fp16, on the CPU, with a scale set by hand."""

    def __init__(self, device: str, enabled: bool) -> None:
        super().__init__("cpu", enabled=True, init_scale=256.0)


def test_a_scale_that_another_worker_changed_does_not_change_the_gradient(
    make, monkeypatch
) -> None:
    batch = make.batch(make.images, 5, 4, seed=3)
    expected = make.gradient_of(batch, make.images)
    monkeypatch.setattr(learner_module.torch.amp, "GradScaler", Scaler)
    for newest in (256.0, 64.0, 1024.0):
        learner = make.learner(make.images)
        worker = learner.make_worker()
        sums = learner.differentiate(batch, worker)
        assert worker.loss_scale == 256.0
        learner._state.scaler.update(newest)  # as another worker's update does now and then
        report = learner.apply(worker, sums, learned_steps=0)
        assert report.applied
        torch.testing.assert_close(make.gradient(learner), expected, rtol=1e-4, atol=1e-6)
        assert report.metrics["gradient_norm"] == pytest.approx(float(expected.norm()), rel=1e-4)


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
            make.flat, objective=make.objective(), device=make.cpu, compiled=compiled
        )
        worker.refresh(list(learner.network.parameters()))
        worker.differentiate(batch)
        gradients.append(torch.cat([g.reshape(-1) for g in worker.gradients()]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
