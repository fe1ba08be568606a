"""AcceRL's Code 1 as printed (Zhang 2022, Table 1): actors on a policy that a chain compresses.

    python examples/accerl_code1.py [key=value ...]

It trains Pong for some updates; `key=value` changes a setting, as with `aclearn train`.
"""

import sys

import ale_py
import gymnasium
from accerl_names import (
    ONNX,
    Actor,
    AtariCNN,
    CompressorChain,
    Distiller,
    ISCorrector,
    Learner,
    Pruning,
    QManager,
    Quantilizer,
    VTraceCorrector,
)

gymnasium.register_envs(ale_py)
env = gymnasium.make("ALE/Pong-v5")
action_space, num_agents = env.action_space, 2

# fmt: off
# The model of original policy network.
policyNet=AtariCNN(action_space)
# The chain of responsibility of different compression methods.
compreNet=CompressorChain()
compreNet.add(Pruning(policyNet, 0.5)).add(Distiller(policyNet)).add(Quantilizer('INT8')).add(ONNX())
# Create N Actors to collect data by using compressed policy network.
Agents=[Actor(env, compreNet.policy, rank) for rank in range(num_agents)]
# fmt: on

# learner processes: those of Code 2, with the default bounds
memory = QManager(Agents)
memory.add_corrector(VTraceCorrector()).add_corrector(ISCorrector())
learner = Learner(policyNet, memory)
learner.overrides = ["run.experiment=accerl_code1", "run.max_updates=200", *sys.argv[1:]]
for actor in Agents:
    actor.start()
learner.start()
print(f"updates: {learner.join()['updates']}")
