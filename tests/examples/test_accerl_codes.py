"""AcceRL's Codes 1 to 3 as a user runs them, and what their names stand for."""

from __future__ import annotations

import json
import os
from itertools import accumulate
from pathlib import Path

import gymnasium
import pytest

from aclearn.config import load_config
from aclearn.errors import AclearnError, ConfigError
from examples.accerl_names import (
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
from tests.support.waiting import run_python

_EXAMPLES = Path(__file__).parents[2] / "examples"
_CODE_1 = """
policyNet=AtariCNN(action_space)
compreNet=CompressorChain()
compreNet.add(Pruning(policyNet, 0.5)).add(Distiller(policyNet)).add(Quantilizer('INT8')).add(ONNX())
Agents=[Actor(env, compreNet.policy, rank) for rank in range(num_agents)]
"""
_CODE_2 = """
memory=QManager(Agents)
memory.add_corrector(VTraceCorrector(tho,c)).add_corrector(ISCorrector(tho))
learner=Learner(policyNet,memory,alg='AC',dpp=True,AMP=True)
"""
_CODE_3 = """
klMonitor=KLMonitor(policyNet, compreNet.policy, thre=14.0)
compressStratege=Strategy(compreNet, klMonitor)
for actor in Agents:
    actor.start()
learner.start()
compressStratege.start()
"""
_SMALL = (
    "run.max_updates=2",
    "actors.envs_per_group=2",
    "trainer.unrolls_per_batch=2",
    "trainer.device=cpu",
    "env.atari.screen_size=40",
    "compressor.observations=8",
)


@pytest.mark.parametrize(
    ("number", "printed"), [*enumerate(accumulate([_CODE_1, _CODE_2, _CODE_3]), start=1)]
)
def test_a_code_has_the_papers_lines_in_order(number: int, printed: str) -> None:
    lines = iter((_EXAMPLES / f"accerl_code{number}.py").read_text().splitlines())
    assert [line for line in printed.splitlines() if line and line not in lines] == []


@pytest.mark.parametrize(
    "number", [*(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2)), 3]
)
def test_a_code_trains(number: int, tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    example = _EXAMPLES / f"accerl_code{number}.py"
    done = run_python(example, *_SMALL, f"run.dir={tmp_path}", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "updates: 2"
    run = tmp_path / f"accerl_code{number}-1"
    summary = json.loads((run / "summary.json").read_text())
    learners = 1 if number == 1 else 2  # of Code 2 on with dpp=True
    assert summary["learned_steps"] == learners * 2 * 2 * 2 * 5
    config = load_config(run / "config.yaml")
    assert config.compressor.chain == [{"prune": 0.5}, "distill", {"quantize": "int8"}, "onnx"]
    assert config.trainer.processes == learners
    strategies = [(each.name, each.arguments.epsilon) for each in config.monitor.strategies]
    assert strategies == ([("threshold", 14.0)] if number == 3 else [])


def _learner(**learner) -> tuple[Learner, CompressorChain, list[Actor]]:
    env = gymnasium.make("CartPole-v1")
    policy = AtariCNN(env.action_space, "mlp")
    chain = CompressorChain()
    chain.add(Pruning(policy, 0.3)).add(Distiller(policy)).add(Quantilizer("FP16")).add(ONNX())
    agents = [Actor(env, chain.policy, rank) for rank in range(3)]
    memory = QManager(agents)
    memory.add_corrector(VTraceCorrector(2.0, 1.5)).add_corrector(ISCorrector(3.0))
    return Learner(policy, memory, **learner), chain, agents


def test_each_name_stands_for_a_setting() -> None:
    learner, chain, agents = _learner(AMP=True)
    Strategy(chain, KLMonitor(None, chain.policy, thre=7.0))
    for actor in agents[:2]:
        actor.start()
    learner.overrides = ["actors.groups=4"]
    config = learner.config()
    assert (config.env.id, config.policy.architecture) == ("CartPole-v1", "mlp")
    assert (config.actors.processes, config.actors.groups) == (2, 4)
    assert config.compressor.chain == [{"prune": 0.3}, "distill", {"quantize": "fp16"}, "onnx"]
    vtrace, weights = (each.arguments for each in config.correctors)
    assert (vtrace.rho_bar, vtrace.c_bar, weights.rho_bar) == (2.0, 1.5, 3.0)
    assert (config.trainer.amp, config.loss.kind) == ("auto", "actor_critic")
    [strategy] = config.monitor.strategies
    assert (strategy.name, strategy.arguments.epsilon) == ("threshold", 7.0)
    assert strategy.arguments.indicator == "compressor_kl_max"
    # the rest is Table 5
    table = load_config("accerl/original")
    assert (config.optimiser, config.loss) == (table.optimiser, table.loss)


def test_a_mistake_is_told_before_a_process_starts() -> None:
    with pytest.raises(ConfigError, match=r"^alg: expected 'AC'.*got 'PPO'"):
        _learner(alg="PPO")
    learner, chain, agents = _learner()
    with pytest.raises(ConfigError, match="no actor was started"):
        learner.start()
    with pytest.raises(AclearnError, match=r"call start\(\) before join"):
        learner.join()
    with pytest.raises(AclearnError, match=r"make the Strategy before learner.start"):
        Strategy(chain, KLMonitor(None, chain.policy)).start()
    agents[0].start()
    other, _, more = _learner()
    more[1].start()
    other._memory.agents.append(agents[0])
    with pytest.raises(ConfigError, match="one environment and one policy"):
        other.start()
    learner.overrides = ["trainer.device=gpu"]
    with pytest.raises(ConfigError, match=r"trainer\.device"):
        learner.start()
