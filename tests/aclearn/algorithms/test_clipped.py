"""PPO and IMPACT by hand, and against formulas of this file, step by step in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aclearn.algorithms import Loss, LossSums, Outputs
from aclearn.algorithms.impact import IMPACT, IMPACTConfig
from aclearn.algorithms.ppo import PPO, PPOConfig
from aclearn.distributions import torch_distribution_of
from aclearn.learning.batch import Batch
from aclearn.types.action_spec import ActionPart, ActionSpec
from correctors import Correction


def sums_of(loss: Loss, config: PPOConfig, spec: ActionSpec, of_steps: dict) -> LossSums:
    """The loss of tensors by name; `parameters` and `values` may require gradients."""
    given = {name: torch.as_tensor(value) for name, value in of_steps.items()}
    no = torch.zeros_like(given["valid"])
    distribution = torch_distribution_of(spec)
    policy = distribution(given["parameters"], given.get("masks"))
    batch = Batch(
        observations={}, actions=given["actions"], rewards=torch.zeros_like(given["values"]),
        behaviour_log_prob=given["behaviour_log_prob"], terminated=no, truncated=no,
        valid=given["valid"], versions=no.numpy(),
        masks=given.get("masks"),
    )  # fmt: skip
    outputs = Outputs(
        policy,
        policy.log_prob(given["actions"]),
        given["values"],
        given["proximal_log_probs"],
        given["proximal_values"],
    )
    correction = Correction(
        given["targets"], given["advantages"], given["weights"], advantage_scale=0.5
    )
    return loss(batch, outputs, correction, config)


#: T = 3, B = 1: the ratios to `proximal_log_probs` are 1.5, 1.5 and 0.5.
_BY_HAND = {
    "parameters": torch.log(torch.tensor([[[0.6, 0.4]], [[0.6, 0.4]], [[0.1, 0.9]]])),
    "actions": torch.tensor([[0], [0], [0]]),
    "proximal_log_probs": torch.log(torch.tensor([[0.4], [0.4], [0.2]])),
    "behaviour_log_prob": torch.log(torch.tensor([[0.8], [0.3], [0.9]])),
    "weights": torch.tensor([[1.0], [0.5], [0.25]]),
    "advantages": torch.tensor([[2.0], [-4.0], [8.0]]),
    "values": torch.tensor([[1.0], [3.0], [-1.0]]),
    "proximal_values": torch.tensor([[0.0], [2.9], [-3.0]]),
    "targets": torch.tensor([[2.0], [2.0], [-2.0]]),
    "valid": torch.ones(3, 1, dtype=torch.bool),
}
_TWO = ActionSpec.discrete(2)


def _entropy(p: float) -> float:
    return -(p * math.log(p) + (1 - p) * math.log(1 - p))


def test_ppo_is_the_sum_that_one_gets_by_hand() -> None:
    config = PPOConfig(clip_range=0.2, value_clip=0.5, value_cost=0.7, entropy_cost=0.1)
    sums = sums_of(PPO(), config, _TWO, _BY_HAND)
    # weight · advantage · the scale of 0.5: 1, -1 and 1
    policy = -(min(1.5, 1.2) * 1 + min(1.5 * -1, 1.2 * -1) + min(0.5, 0.8) * 1)
    # v_prox + clip: 0.5, 3.0 and -2.5; the larger error counts
    value = 0.5 * (max(1.0**2, 1.5**2) + 1.0**2 + max(1.0**2, 0.5**2))
    entropy = 2 * _entropy(0.6) + _entropy(0.1)
    kl = sum(r - 1 - math.log(r) for r in (1.5, 1.5, 0.5))
    expected = {
        "policy_loss": policy,
        "value_loss": value,
        "entropy": entropy,
        "clipped_ratio_share": 3.0,
        "proximal_kl": kl,
    }
    assert {n: float(v) for n, v in sums.metrics.items()} == pytest.approx(expected, rel=1e-5)
    assert float(sums.total) == pytest.approx(policy + 0.7 * value - 0.1 * entropy, rel=1e-5)


def test_impact_bounds_the_ratio_of_behaviour_to_target() -> None:
    config = IMPACTConfig(clip_range=0.3, ratio_bar=2.0)
    sums = sums_of(IMPACT(), config, _TWO, _BY_HAND)
    # μ/π_target is 2, 0.75 and 4.5, which counts as 2; π/μ is 0.75, 2 and 1/9
    ratios = [2 * 0.75, 0.75 * 2, 2 / 9]
    policy = -(min(ratios[0], 1.3) + min(-ratios[1], -1.3) + min(ratios[2], 0.7))
    assert float(sums.metrics["policy_loss"]) == pytest.approx(policy, rel=1e-5)
    # without the bound it is the ratio to the target network, 0.5 in the last step
    unbounded = sums_of(IMPACT(), IMPACTConfig(clip_range=0.3, ratio_bar=1e6), _TWO, _BY_HAND)
    last = float(unbounded.metrics["policy_loss"] - sums.metrics["policy_loss"])
    assert last == pytest.approx(-(0.5 - 2 / 9), rel=1e-4)
    # β and μ have no part in the distance from the target network
    distance = sum(q - 1 - math.log(q) for q in (1.5, 1.5, 0.5))
    assert float(sums.metrics["proximal_kl"]) == pytest.approx(distance, rel=1e-5)


def test_a_batch_ends_above_the_kl_that_the_configuration_bounds() -> None:
    bounded = PPOConfig(target_kl=0.02)
    assert PPO().ends_batch({"proximal_kl": 0.021}, bounded)
    assert not PPO().ends_batch({"proximal_kl": 0.019}, bounded)
    assert not PPO().ends_batch({"proximal_kl": 9.0}, PPOConfig())


_SPECS = {
    "discrete": ActionSpec.discrete(3),
    "multi_discrete": ActionSpec.of((ActionPart(shape=(2,), counts=(2, 3), starts=(0, 0)),)),
    "box": ActionSpec.of((ActionPart(shape=(2,), dtype="float32", low=(-2, -1), high=(2, 1)),)),
}


def _log_prob_and_entropy(spec: ActionSpec, parameters, actions) -> tuple[float, float]:
    """Of one step in float64."""
    if spec.numbers:
        mean, log_std = np.split(parameters, 2)
        variance = np.exp(2 * log_std)
        density = np.exp(-((actions - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        entropy = 0.5 * np.log(2 * np.pi * np.e * variance)
        return float(np.log(density).sum()), float(entropy.sum())
    log_prob = entropy = 0.0
    for logits, taken in zip(
        np.split(parameters, np.cumsum(spec.counts)[:-1]), np.atleast_1d(actions), strict=True
    ):
        p = np.exp(logits) / np.exp(logits).sum()
        log_prob += float(np.log(p[int(taken)]))
        entropy -= float((p[p > 0] * np.log(p[p > 0])).sum())
    return log_prob, entropy


def _plain(kind: str, config: PPOConfig, spec: ActionSpec, s: dict, flat: np.ndarray) -> float:
    """The total as the papers have it, step by step in float64.

    `flat` has the parameters and then the values.
    """
    parameters = flat[: s["parameters"].size].reshape(s["parameters"].shape)
    values = flat[s["parameters"].size :].reshape(s["values"].shape)
    if "masks" in s:
        parameters = np.where(s["masks"], parameters, -np.inf)
    total = 0.0
    for t, b in np.argwhere(s["valid"]):
        log_prob, entropy = _log_prob_and_entropy(spec, parameters[t, b], s["actions"][t, b])
        proximal, behaviour = (
            float(s[name][t, b]) for name in ("proximal_log_probs", "behaviour_log_prob")
        )
        ratio = math.exp(log_prob - proximal)
        if kind == "impact":
            bound = min(config.ratio_bar, math.exp(behaviour - proximal))
            ratio = bound * math.exp(log_prob - behaviour)
        advantage = 0.5 * float(s["weights"][t, b]) * float(s["advantages"][t, b])
        low, high = 1 - config.clip_range, 1 + config.clip_range
        gain = min(ratio * advantage, min(max(ratio, low), high) * advantage)
        target, before = float(s["targets"][t, b]), float(s["proximal_values"][t, b])
        change = min(max(values[t, b] - before, -config.value_clip), config.value_clip)
        error = max((values[t, b] - target) ** 2, (before + change - target) ** 2)
        total += -gain + config.value_cost * 0.5 * error - config.entropy_cost * entropy
    return total


def _random_steps(spec: ActionSpec, masked: bool) -> dict:
    """T = 4, B = 3, one step of which is not valid; ratios near and beyond every bound."""
    rng = np.random.default_rng(5)
    T, B = 4, 3
    width = 2 * spec.numbers or sum(spec.counts)
    valid = np.ones((T, B), np.bool_)
    valid[2, 1] = False
    parameters = rng.normal(size=(T, B, width))
    if spec.numbers:
        actions = rng.normal(size=(T, B, spec.numbers))
    elif spec.kind == "multi_discrete":
        actions = np.stack([rng.integers(0, n, (T, B)) for n in spec.counts], -1)
    else:
        actions = rng.integers(0, spec.counts[0], (T, B))
    masks = np.ones((T, B, width), np.bool_)
    if masked:
        actions = np.zeros_like(actions)  # choice 0 of each part, while the last is masked
        masks[1, :, -1] = masks[3, :, -1] = False
    steps = {"parameters": parameters, "actions": actions, "valid": valid}
    logits = np.where(masks, parameters, -np.inf) if masked else parameters
    log_probs = np.array(
        [
            [_log_prob_and_entropy(spec, logits[t, b], actions[t, b])[0] for b in range(B)]
            for t in range(T)
        ]
    )
    steps |= {
        "proximal_log_probs": log_probs + rng.normal(size=(T, B)) * 0.4,
        "behaviour_log_prob": log_probs + rng.normal(size=(T, B)),
        "weights": rng.uniform(0.2, 1.0, (T, B)),
        **{name: rng.normal(size=(T, B)) for name in ("advantages", "targets", "values")},
    }
    steps["proximal_values"] = steps["values"] + rng.normal(size=(T, B)) * 0.5
    return steps | ({"masks": masks} if masked else {})


_LOSSES = {
    "ppo": (PPO(), PPOConfig(value_clip=0.3, entropy_cost=0.2, value_cost=0.6)),
    "impact": (IMPACT(), IMPACTConfig(value_clip=0.3, entropy_cost=0.2, ratio_bar=1.5)),
}


@pytest.mark.parametrize(
    ("name", "masked"),
    [("discrete", False), ("discrete", True), ("multi_discrete", True), ("box", False)],
)
@pytest.mark.parametrize("kind", ["ppo", "impact"])
def test_loss_and_gradient_are_those_of_the_papers_formula(kind, name, masked) -> None:
    (loss, config), spec = _LOSSES[kind], _SPECS[name]
    steps = _random_steps(spec, masked)
    flat = np.concatenate([steps["parameters"].ravel(), steps["values"].ravel()])
    small = 1e-6
    slopes = [
        (
            _plain(kind, config, spec, steps, flat + small * unit)
            - _plain(kind, config, spec, steps, flat - small * unit)
        )
        / (2 * small)
        for unit in np.eye(len(flat))
    ]

    given = {
        n: torch.tensor(v, dtype=torch.float32 if v.dtype == np.float64 else None)
        for n, v in steps.items()
    }
    ours = [given[n].requires_grad_() for n in ("parameters", "values")]
    sums = sums_of(loss, config, spec, given)
    assert float(sums.total.detach()) == pytest.approx(
        _plain(kind, config, spec, steps, flat), rel=1e-4
    )
    gradients = torch.cat([g.flatten() for g in torch.autograd.grad(sums.total, ours)])
    np.testing.assert_allclose(gradients, slopes, rtol=2e-3, atol=2e-4)
    # clipped and free steps were among them
    assert 0 < float(sums.metrics["clipped_ratio_share"]) < steps["valid"].sum()

    # an invalid step may hold anything
    with torch.no_grad():
        for n in ("targets", "advantages", "weights", "proximal_log_probs", "proximal_values",
                  "behaviour_log_prob"):  # fmt: skip
            given[n][2, 1] = math.nan
    spoilt = sums_of(loss, config, spec, given)
    again = torch.cat([g.flatten() for g in torch.autograd.grad(spoilt.total, ours)])
    assert torch.equal(again, gradients)
    for metric, value in spoilt.metrics.items():
        assert torch.equal(value, sums.metrics[metric]), metric


def test_a_ratio_that_overflows_has_a_finite_loss() -> None:
    steps = _BY_HAND | {"proximal_log_probs": torch.full((3, 1), -300.0)}
    sums = sums_of(PPO(), PPOConfig(), _TWO, steps)
    assert math.isfinite(float(sums.total))
