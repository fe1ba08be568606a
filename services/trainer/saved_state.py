"""What a checkpoint has of a trainer, and how a later one continues from it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from aclearn.config import Config
from aclearn.errors import CheckpointError
from aclearn.learning import BatchSource, Learner, StepAccount
from aclearn.learning.ranks import gather_bytes
from aclearn.telemetry.machine import machine
from aclearn.types import EnvSpec
from services.role.seeds import Seeds, Use
from services.trainer.gauges import Figures, TrainerCounters
from services.trainer.rounds import Rounds
from services.trainer.snapshot import Snapshot

#: Longest wait of a snapshot for an update to end; most take milliseconds.
SNAPSHOT_WITHIN_S: Final = 3.0


class SavedState:
    """Copies the parts of a trainer of one policy into snapshots, and takes them from one.

    Args:
        figures: their counters are a part.
        generation: of this trainer.
    """

    def __init__(
        self,
        learner: Learner,
        account: StepAccount,
        source: BatchSource,
        rounds: Rounds,
        figures: Figures,
        *,
        config: Config,
        spec: EnvSpec,
        generation: int,
    ) -> None:
        self._learner, self._account, self._source = learner, account, source
        self._rounds, self._figures = rounds, figures
        self._config, self._spec, self._generation = config, spec, generation
        self._machine = _machine_of(learner.device)

    def snapshot(self, *, whole: bool = True) -> Snapshot:
        """The present state, for a later trainer.

        Args:
            whole: with the state of the source, between batches; False: what was learned, with
                which a later trainer's source begins afresh.

        Raises:
            CheckpointError: an update or the source hangs, so that they cannot be read.
        """
        # weights and counters of the same moment; workers wait for the copy only
        lock = self._learner.lock
        if not lock.acquire(timeout=SNAPSHOT_WITHIN_S):
            raise CheckpointError(f"an update has not ended for {SNAPSHOT_WITHIN_S:g} s")
        try:
            tensors, state = self._learner.state_tensors(), self.described()
        finally:
            lock.release()
        try:
            tensors |= self._source.state() if whole else {}
        except TimeoutError as error:
            raise CheckpointError(str(error)) from None  # an OSError, but not of the disk
        tensors["random/torch"] = np.array(torch.get_rng_state().numpy())
        return Snapshot(tensors, state | {"judged": None})

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot of an earlier trainer.

        Raises:
            KeyError, TypeError, ValueError: a part is missing.
            CheckpointError: it does not fit this trainer.
        """
        tensors = snapshot.tensors
        torch.set_rng_state(torch.from_numpy(tensors["random/torch"].copy()))
        self._take(snapshot)
        self._source.restore(tensors)

    def share(self) -> None:
        """Give the state of rank 0 to every rank, so that all begin with the same weights.

        Random numbers of the other ranks are their own: each has other steps to draw for.
        """
        group = self._rounds.group
        if group.size == 1:
            return
        mine = b""
        if group.rank == 0:
            mine = Snapshot(self._learner.state_tensors(), self.described()).packed()
        first = Snapshot.unpacked(gather_bytes(group, mine, self._learner.device)[0])
        if group.rank > 0:
            self._take(first)
            seed = Seeds(self._config.run.seed, self._generation, group.rank).number(Use.LEARNING)
            for generator in self._learner.state.generators.values():
                generator.manual_seed(seed)
            torch.manual_seed(seed)
        self._rounds.ledgers = first.ledgers(group.size)

    def described(self) -> dict[str, Any]:
        """What JSON can hold of the present state."""
        architecture = self._learner.architecture
        return {
            "architecture": architecture.digest(),
            "architecture_spec": architecture.to_dict(),
            "environment": self._spec.of_environment(),
            "machine": self._machine,
            "policy": self._account.policy,
            "generation": self._generation,
            "counters": dict(vars(self._figures.counters)),
            "settings": self._learner.wanted,
            **self._accounts(),
        }

    def _take(self, snapshot: Snapshot) -> None:
        self._figures.counters = TrainerCounters(**snapshot.state["counters"])
        self._learner.load_state_tensors(snapshot.tensors)
        self._learner.set(**snapshot.state["settings"])
        self._learner.adopt()
        ledgers = snapshot.ledgers(self._rounds.group.size)
        self._account.restore(ledgers[self._rounds.group.rank])
        self._rounds.ledgers = ledgers

    def _accounts(self) -> dict[str, Any]:
        """The account of the run, and of several ranks each one's."""
        mine, group = self._account.state(), self._rounds.group
        if group.size == 1:
            return {"account": mine}
        ledgers = [*self._rounds.ledgers]
        ledgers[group.rank] = mine
        if self._rounds.stale:  # at an end without the others
            others = [ledger for rank, ledger in enumerate(ledgers) if rank != group.rank]
            learned = int(self._learner.state.learned_steps) - self._account.learned_steps
            gone = StepAccount.reckoned(others, self._account.elsewhere, learned)
            empty = StepAccount(policy=self._account.policy).state()
            ledgers = [mine, gone, *[empty] * (group.size - 2)]
        return {"account": StepAccount.joined(ledgers), "ledgers": ledgers}


def _machine_of(device: torch.device) -> str:
    """The machine that learns, for who reads of the policy later."""
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return machine() + gpu
