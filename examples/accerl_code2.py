"""AcceRL's Code 2 as printed (Zhang 2022, Table 2): Code 1, and the corrector chain of its data.

    python examples/accerl_code2.py [key=value ...]

It trains Pong for some updates; `key=value` changes a setting, as with `aclearn train`.
"""

import logging
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

logging.basicConfig()
gymnasium.register_envs(ale_py)
env = gymnasium.make("ALE/Pong-v5")
action_space, num_agents, tho, c = env.action_space, 2, 1.0, 1.0

# fmt: off
policyNet=AtariCNN(action_space)
compreNet=CompressorChain()
compreNet.add(Pruning(policyNet, 0.5)).add(Distiller(policyNet)).add(Quantilizer('INT8')).add(ONNX())
Agents=[Actor(env, compreNet.policy, rank) for rank in range(num_agents)]
# The experience replay memory, which save the data from each Actor.
memory=QManager(Agents)
# The chain of responsibility of different correction methods.
memory.add_corrector(VTraceCorrector(tho,c)).add_corrector(ISCorrector(tho))
# Create the learner with policy network and memory.
learner=Learner(policyNet,memory,alg='AC',dpp=True,AMP=True)
# fmt: on

learner.overrides = ["run.experiment=accerl_code2", "run.max_updates=200", *sys.argv[1:]]
for actor in Agents:
    actor.start()
learner.start()
print(f"updates: {learner.join()['updates']}")
