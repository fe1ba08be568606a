"""AcceRL's chain without a run: compress a policy with a chain of methods, and act with the result.

    python examples/compress_policy.py

The paper (Zhang 2022, Table 1) gives the policy to the links; here `chain.compress` takes it, since
one chain compresses every version. `Distiller()` trains the pruned network. A named student, as in
`Distiller("accerl-net1")`, would be trained instead, and the chain would skip the pruning.
"""

from __future__ import annotations

import numpy as np

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs import make_vector_env
from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.types import Visited
from compress import (
    ONNX,
    ArtifactRuntime,
    CompressorChain,
    Context,
    Distiller,
    Policy,
    Pruning,
    Quantizer,
)


def main() -> None:
    """Compress a fresh policy for Pong and take some steps with it."""
    env = make_vector_env(
        EnvConfig(id="ALE/Pong-v5"), num_envs=8, seed=1, step_timeout_s=30.0, max_faults=0
    )
    spec, rng = env.spec, np.random.default_rng(1)

    # The model of the original policy network.
    architecture = describe_architecture(
        "accerl-original",
        observation=spec.observation,
        actions=spec.action,
    )
    policy = Policy.of(architecture, tensors_of(PolicyNetwork(architecture, seed=1)))
    visited = [env.reset()["observation"]]
    for _ in range(20):
        env.send(rng.integers(spec.action.counts[0], size=env.num_envs))
        visited.append(env.recv().observations["observation"])
    context = Context(Visited({"observation": np.concatenate(visited)}))

    # The chain of responsibility of different compression methods.
    chain = (
        CompressorChain(batch_sizes=(1, 8))
        .add(Pruning(0.5))
        .add(Distiller())
        .add(Quantizer("INT8"))
        .add(ONNX())
    )
    artifact = chain.compress(policy, context)

    # Actors collect data by using the compressed policy network.
    actor = ArtifactRuntime(architecture).load(artifact)
    distribution = distribution_of(architecture.action_spec)
    for _ in range(20):
        output = actor.step({"observation": visited[-1]})
        actions, _ = distribution.sample(output.parameters, rng)
        env.send(actions)
        visited.append(env.recv().observations["observation"])
    env.close()

    original_bytes = sum(tensor.nbytes for tensor in policy.tensors.values())
    print(f"chain      {artifact.chain}")
    print(f"bytes      {original_bytes:,} → {artifact.bytes:,}")
    print(
        f"KL         mean {artifact.fidelity.kl_mean:.4g}, max {artifact.fidelity.kl_max:.4g} nats"
    )
    for size, ms in artifact.latency_ms.items():
        print(f"batch {size:<4} {ms:.3f} ms")


if __name__ == "__main__":
    main()
