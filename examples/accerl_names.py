"""AcceRL's Codes 1 to 3 as printed (Zhang 2022): names that make one configuration and train it.

The objects only collect settings. `Learner.start` puts them on top of `accerl/original`, AcceRL's
Table 5, and starts `aclearn train`; docs/accerl.md says which of our names each one stands for.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import gymnasium

from aclearn.config import Config, load_config
from aclearn.errors import AclearnError, ConfigError
from aclearn.runs import next_name

#: What the objects' settings come on top of.
_BASE = "accerl/original"


class AtariCNN:
    """The policy network (`policy.architecture`); of Table 6 unless another one is named."""

    def __init__(
        self, action_space: gymnasium.Space[Any], architecture: str = "accerl-original"
    ) -> None:
        self.action_space, self.architecture = action_space, architecture


class Pruning:
    """The link `prune` with a sparsity, of the policy that comes to it in the chain."""

    def __init__(self, policyNet: AtariCNN, sparsity: float) -> None:
        self.words = {"prune": sparsity}


class Distiller:
    """The link `distill`: training the pruned network, or a student that is named.

    Args:
        policyNet: the teacher.
        student: an architecture of its own, e.g. accerl-net1; None: the network in the chain.
    """

    def __init__(self, policyNet: AtariCNN, student: str | None = None) -> None:
        self.words = {"distill": student} if student else "distill"


class Quantilizer:
    """The link `quantize`: 'INT8', 'FP16' or 'BF16'."""

    def __init__(self, kind: str) -> None:
        self.words = {"quantize": kind.lower()}


class ONNX:
    """The link `onnx`."""

    words = "onnx"


class CompressorChain:
    """`compressor.chain`; its processes compress each new version.

    Attributes:
        policy: what the actors run; this chain itself.
        strategies: entries of `monitor.strategies`.
        runs_with: those of the run that was started.
    """

    def __init__(self) -> None:
        self.links: list[Any] = []
        self.strategies: list[Any] = []
        self.runs_with: list[Any] = []

    def add(self, link: Pruning | Distiller | Quantilizer | type[ONNX] | ONNX) -> Self:
        """Append a link."""
        self.links.append(link.words)
        return self

    @property
    def policy(self) -> Self:
        """The compressed policy, whatever its version."""
        return self


class Actor:
    """One actor process (`actors.processes` counts them), with one environment.

    Args:
        env: an environment of gymnasium or its id; the process makes its own.
        policy: `CompressorChain.policy`, or the network itself for no compression.
        rank: from 0.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any] | str, policy: CompressorChain | AtariCNN, rank: int
    ) -> None:
        self.env, self.policy, self.rank, self.started = env, policy, rank, False

    def start(self) -> None:
        """Take part in the run, which begins with `Learner.start`."""
        self.started = True


class VTraceCorrector:
    """The corrector `vtrace`: the bounds ρ̄ and c̄ of equation 2."""

    def __init__(self, tho: float = 1.0, c: float = 1.0) -> None:
        self.words = {"vtrace": {"rho_bar": tho, "c_bar": c}}


class ISCorrector:
    """The corrector `importance_sampling`: the bound of equation 3's ratio."""

    def __init__(self, tho: float = 1.0) -> None:
        self.words = {"importance_sampling": {"rho_bar": tho}}


class QManager:
    """The training queue with its corrector chain (`correctors`)."""

    def __init__(self, Agents: Sequence[Actor]) -> None:
        self.agents, self.correctors = list(Agents), list[Any]()

    def add_corrector(self, corrector: VTraceCorrector | ISCorrector) -> Self:
        """Append a corrector."""
        self.correctors.append(corrector.words)
        return self


class KLMonitor:
    """The indicator `compressor_kl_max` and its bound ε (figure 6), in nats."""

    def __init__(self, policyNet: AtariCNN, policy: CompressorChain, thre: float = 14.0) -> None:
        self.words = {"threshold": {"indicator": "compressor_kl_max", "epsilon": thre}}


class Strategy:
    """The strategy `threshold`: beyond the bound the uncompressed policy acts, until it fits."""

    def __init__(self, compreNet: CompressorChain, monitor: KLMonitor) -> None:
        self._chain, self._words = compreNet, monitor.words
        compreNet.strategies.append(monitor.words)

    def start(self) -> None:
        """Make sure that the run's monitor follows it; the monitor began with `Learner.start`.

        Raises:
            AclearnError: the run began without it, or has not begun.
        """
        if self._words not in self._chain.runs_with:
            raise AclearnError("make the Strategy before learner.start(), and start it afterwards")


class Learner:
    """The trainer, and with it the run.

    Args:
        policyNet: the network that learns.
        memory: the training queue with its actors and correctors.
        alg: 'AC', the actor-critic loss.
        dpp: data-parallel learners, two of them (`trainer.processes`), with actors of their own.
        AMP: `trainer.amp: auto` instead of `off`.

    Attributes:
        overrides: further settings as on the command line, e.g. "run.max_updates=100".

    Raises:
        ConfigError: another algorithm.
    """

    def __init__(
        self,
        policyNet: AtariCNN,
        memory: QManager,
        alg: str = "AC",
        dpp: bool = False,
        AMP: bool = False,
    ) -> None:
        if alg != "AC":
            raise ConfigError(f"alg: expected 'AC', AcceRL's actor-critic; got {alg!r}")
        self._policy_net, self._memory, self._amp, self._dpp = policyNet, memory, AMP, dpp
        self.overrides: list[str] = []
        self._folder = Path()
        self._run: subprocess.Popen[bytes] | None = None

    def _settings(self) -> list[str]:
        actors = [actor for actor in self._memory.agents if actor.started]
        if not actors:
            raise ConfigError("Agents: no actor was started; call start() of each before")
        if len({(id(actor.env), id(actor.policy)) for actor in actors}) > 1:
            raise ConfigError("Agents: all actors of a run have one environment and one policy")
        policy = actors[0].policy
        settings: dict[str, Any] = {
            **_env_settings(actors[0].env),
            "policy.architecture": self._policy_net.architecture,
            "actors.processes": len(actors),
            "trainer.amp": "auto" if self._amp else "off",
            "trainer.processes": 2 if self._dpp else 1,
            "loss.kind": "actor_critic",
            "correctors": self._memory.correctors,
        }
        if isinstance(policy, CompressorChain):
            settings["compressor.chain"] = policy.links
            # a distilling chain takes seconds for an artifact, and the monitor waits for a whole
            # comparison
            settings["compressor.fidelity_every"] = 4
            settings["monitor.strategies"] = policy.strategies
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()] + self.overrides

    def config(self) -> Config:
        """The configuration that all objects make.

        Raises:
            ConfigError: no actor was started, they differ, or a setting cannot be used.
        """
        return load_config(_BASE, self._settings())

    def start(self) -> None:
        """Start the run in processes of its own; a program that ends waits for it.

        Raises:
            ConfigError: as `config`.
        """
        config = self.config()
        name = config.run.name or next_name(config.run.dir, config.experiment)
        self._folder = Path(config.run.dir, name)
        command = [sys.executable, "-P", "-m", "services", "train", _BASE, *self._settings()]
        command.append(f"run.name={name}")
        self._run = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        atexit.register(self._run.wait)
        if isinstance(policy := self._memory.agents[0].policy, CompressorChain):
            policy.runs_with = list(policy.strategies)

    def join(self) -> Mapping[str, Any]:
        """Wait for the end of the run; its `summary.json`.

        Raises:
            AclearnError: the run was not started, or failed.
        """
        if self._run is None:
            raise AclearnError("the learner was not started; call start() before join()")
        if status := self._run.wait():
            raise AclearnError(f"the run ended with status {status}, see {self._folder}")
        summary: dict[str, Any] = json.loads((self._folder / "summary.json").read_text())
        return summary


def _env_settings(env: gymnasium.Env[Any, Any] | str) -> dict[str, Any]:
    if isinstance(env, str):
        return {"env.id": env}
    if env.spec is None:
        raise ConfigError("env: an environment without spec.id cannot be made again; give its id")
    # aclearn prepares Atari games itself (env.atari)
    kwargs = {} if env.spec.id.startswith("ALE/") else dict(env.spec.kwargs)
    return {"env.id": env.spec.id, "env.kwargs": kwargs}
