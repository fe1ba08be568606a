"""How far each link moves each kind of head: its mean KL divergence stays below a stated bound."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec, PolicyVersion, Visited
from aclearn.types.action_spec import ActionPart
from compress import Context, Policy, parse_chain
from compress.methods.quantizer import has_vnni

_BOX = ActionPart(("box",), (1,), "float32", low=(-2.0,), high=(2.0,))
_CHOICES = ActionPart(("choices",), (2,), counts=(3, 2), starts=(0, 0))
#: Standard deviation of the Gaussians, of means between -2 and 2: Pendulum's late in a training.
_STD = 0.1
_HEADS = {
    "choice": {"actions": 4},
    "choices": {"actions": ActionSpec.of((_CHOICES,))},
    "gaussian": {"actions": ActionSpec.of((_BOX,)), "initial_std": _STD},
    "gaussian of observations": {
        "actions": ActionSpec.of((_BOX,)),
        "std_from_observations": True,
        "initial_std": _STD,
    },
    "mixed": {"actions": ActionSpec.of((_BOX, _CHOICES)), "initial_std": _STD},
}
#: Largest mean KL divergence of an artifact, in nats: of choices, and of narrow Gaussians.
_BOUNDS = {
    "onnx": (1e-6, 1e-6),
    "fuse": (1e-6, 1e-6),
    "fp16": (1e-6, 1e-4),
    "bf16": (1e-4, 5e-3),
    "int8": (1e-3, 0.05),
    "int8 by channel": (1e-3, 0.02),
    "int8 in 7 bits": (1e-3, 0.2),
    "low_rank": (1e-3, 0.1),
    "prune": (1e-3, 0.1),
    "distill": (1e-3, 0.05),
}
_LINKS = {
    "int8 by channel": {"int8": {"per_channel": True}},
    "int8 in 7 bits": {"int8": {"reduced_range": True}},
    "low_rank": {"low_rank": 24},
    "prune": {"prune": 0.5},
    "distill": {"distill": {"first_steps": 400}},
}


def visited(count: int) -> Visited:
    """Observations of a pendulum: cosine, sine, and a speed of another size."""
    rng = np.random.default_rng(1)
    angles, speeds = rng.uniform(-np.pi, np.pi, count), rng.normal(0.0, 3.0, count).clip(-8, 8)
    rows = np.stack([np.cos(angles), np.sin(angles), speeds], 1)
    return Visited({OBSERVATION: rows.astype(np.float32)})


def policy_of(head: str, seed: int = 3) -> Policy:
    """A policy whose head tells observations apart as a trained one's; singular values fall."""
    observation = ObservationSpec.plain((3,), "float32")
    architecture = build_architecture(
        "mlp", observation, hidden=(64, 64), activation="tanh", **_HEADS[head]
    )
    tensors = dict(tensors_of(PolicyNetwork(architecture, seed=seed)))
    left, _, right = np.linalg.svd(tensors["hidden.1.weight"])
    falling = 3.0 * np.exp(-np.arange(64) / 6)
    tensors["hidden.1.weight"] = ((left * falling) @ right).astype(np.float32)
    last = "policy_mean.weight" if "policy_mean.weight" in tensors else "policy.weight"
    weights = tensors[last]
    if head == "gaussian of observations":
        weights = weights[:1]  # of the mean
        tensors["policy.bias"][1] = np.log(_STD)
    weights *= 2.0 / np.sqrt(np.square(weights).sum(1, keepdims=True))
    return Policy.of(architecture.acting(), tensors, PolicyVersion(0, 1))


def divergence(head: str, *links: object, seed: int = 3) -> float:
    chain = parse_chain([*links, "onnx"], fidelity_observations=512)
    return chain.compress(policy_of(head, seed), Context(visited(1024), seed=1)).fidelity.kl_mean


@pytest.mark.parametrize("head", _HEADS)
@pytest.mark.parametrize("link", _BOUNDS)
def test_the_divergence_of_a_link_stays_below_its_bound(link, head) -> None:
    links = () if link == "onnx" else (_LINKS.get(link, link),)
    chosen = "int8 in 7 bits" if link == "int8" and not has_vnni() else link
    bound = _BOUNDS[chosen]["gaussian" in head or head == "mixed"]
    assert divergence(head, *links) < bound


_KEPT = [{"keep_first": 0, "keep_last": 0}, {"keep_first": 0, "keep_last": 1}, {}]


@pytest.mark.skipif(not has_vnni(), reason="products of 8 bits saturate on this CPU")
def test_what_int8_keeps_in_fp32_is_what_a_narrow_gaussian_needs() -> None:
    rounded, heads, both = (divergence("gaussian", {"int8": kept}) for kept in _KEPT)
    assert both < rounded / 4 and both < heads / 4


def test_what_7_bits_keep_in_fp32_helps_narrow_gaussians() -> None:
    rounded, heads, both = (
        np.mean(
            [
                divergence("gaussian", {"int8": {"reduced_range": True, **kept}}, seed=seed)
                for seed in range(8)
            ]
        )
        for kept in _KEPT
    )
    assert both < heads < rounded
