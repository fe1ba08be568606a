"""AcceRL's Code 3 as printed (Zhang 2022, Table 3): Code 2, and a monitor of the compression.

    python examples/accerl_code3.py [key=value ...]

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
    KLMonitor,
    Learner,
    Pruning,
    QManager,
    Quantilizer,
    Strategy,
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
memory=QManager(Agents)
memory.add_corrector(VTraceCorrector(tho,c)).add_corrector(ISCorrector(tho))
learner=Learner(policyNet,memory,alg='AC',dpp=True,AMP=True)
learner.overrides = ["run.experiment=accerl_code3", "run.max_updates=200", *sys.argv[1:]]  # ours
# Define a KLMonitor with threshold 14.0.
klMonitor=KLMonitor(policyNet, compreNet.policy, thre=14.0)
# Create a compression strategy object.
compressStratege=Strategy(compreNet, klMonitor)
# Processes start loop.
for actor in Agents:
    # Start actor process.
    actor.start()
# Start learner process.
learner.start()
# Start monitor process.
compressStratege.start()
# Rest Code.
# fmt: on

print(f"updates: {learner.join()['updates']}")
