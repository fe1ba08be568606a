"""The meetings of a rank with the others: one before each batch, and one at the end."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from aclearn.errors import RankLost, words_of
from aclearn.learning import StepAccount
from aclearn.learning.ranks import Group, gather_bytes
from aclearn.telemetry import waiting

_LOGGER = logging.getLogger(__name__)

#: Bounds of a run by their numbers in a meeting.
_BOUNDS = (None, "max_env_steps", "max_updates")


class Rounds:
    """What ranks tell each other between batches; a rank alone goes on at once.

    All ranks learn a batch at the same time, or none does. So each is at the same update in a
    meeting, which is the moment for a checkpoint: weights and every rank's account agree.

    Args:
        mark: number of updates and a digest of the weights, which all ranks must have alike.
        before_copies: called by every rank before a checkpoint is copied.
        follow: called by every rank with what `set` has set at rank 0.

    Attributes:
        batches: number of batches that all ranks have learned at the same time.
        over: whether a rank has left, so that there are no meetings any more.
        stale: whether a batch has been learned since the ledgers were of one moment.
        ledgers: the state of every rank's account at the newest moment for a checkpoint.
        learned_elsewhere: agent steps that the other ranks had learned by the newest meeting.
    """

    def __init__(
        self,
        group: Group,
        account: StepAccount,
        device: torch.device,
        *,
        mark: Callable[[], tuple[int, int]],
        before_copies: Callable[[], None],
        follow: Callable[[Mapping[str, float]], None],
    ) -> None:
        self.group, self._account, self._device = group, account, device
        self._mark, self._before_copies, self._follow = mark, before_copies, follow
        #: Guards what another thread wants while this one is in a meeting.
        self._lock = threading.Lock()
        self._settings: dict[str, float] = {}
        self._unshared = False  # whether the next meeting shares the settings
        self.batches, self.over, self.stale = 0, False, False
        self.ledgers: Sequence[dict[str, Any]] = [account.state()]
        self.learned_elsewhere = 0
        self._wanted: list[Callable[[], None]] = []

    @property
    def whole(self) -> bool:
        """Whether the ledgers are those of the present weights."""
        return self.over or self.group.size == 1

    @property
    def _wants(self) -> bool:
        return bool(self._wanted) or self._unshared

    def when_whole(self, copy: Callable[[], None]) -> None:
        """Call `copy` once, now or in the next meeting, when a checkpoint may be copied."""
        if self.whole:
            copy()
            return
        with self._lock:
            if copy not in self._wanted:
                self._wanted.append(copy)

    def set(self, **settings: float) -> None:
        """Let all ranks learn with these numbers, now or from their next meeting; for rank 0."""
        with self._lock:
            self._settings = {**self._settings, **settings}
            self._unshared = True
        if self.whole:
            self._follow(self._settings)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An error within a batch ends this rank, since the others wait for its part."""
        try:
            yield
        except (Exception, SystemExit) as error:  # one of a user's code
            if self.group.size == 1 or isinstance(error, RankLost):
                raise
            raise RankLost(f"this rank failed within a batch: {words_of(error)}") from error

    def leave(self) -> None:
        """Tell the other ranks that this one ends; its accounts are those of a checkpoint then."""
        try:
            with self.together():
                self.meet(False, leaves=True)
        except RankLost as error:
            _LOGGER.warning("event=rank_lost reason=%r", str(error))

    def meet(self, ready: bool, *, leaves: bool = False) -> bool:
        """Whether every rank has a batch, and learns it now; waits for the others.

        Args:
            ready: whether this rank has a batch, of one step at least.
            leaves: this rank comes no more.

        Raises:
            RankLost: another rank has ended without this, or ranks have drifted apart.
        """
        if self.group.size == 1:
            return ready
        if self.over:
            return False
        account, rank = self._account, self.group.rank
        bound = _BOUNDS.index(account.reached)
        counts = (ready, account.env_steps, account.learned_steps, bound)
        mine = torch.tensor((*counts, leaves, self._wants, *self._mark()))
        with waiting("other trainers"):
            told = torch.stack(self.group.gather(mine.to(self._device))).tolist()
        _refuse_drift([(row[6], row[7]) for row in told])
        others = [row for number, row in enumerate(told) if number != rank]
        account.hear(sum(row[1] for row in others))
        self.learned_elsewhere = sum(row[2] for row in others)
        account.end(_BOUNDS[max(row[3] for row in told)])
        leave, want = any(row[4] for row in told), any(row[5] for row in told)
        if leave or want:
            self._before_copies()
            with self._lock:  # what is wanted during the exchange waits for the next meeting
                copies, self._wanted = self._wanted, []
                settings, self._unshared = self._settings, False
            mine_too = {"account": account.state(), "settings": settings}
            texts = gather_bytes(self.group, json.dumps(mine_too).encode(), self._device)
            theirs = [json.loads(text) for text in texts]
            self.ledgers = [each["account"] for each in theirs]
            self._follow(theirs[0]["settings"])
            self.over, self.stale = leave, False
            for copy in copies:
                copy()
        learns = not leave and all(row[0] for row in told)
        if learns:
            self.batches += 1
            self.stale = True
        return learns


def _refuse_drift(marks: Sequence[tuple[int, int]]) -> None:
    for rank, (updates, weights) in enumerate(marks):
        if (updates, weights) != marks[0]:
            at, first = marks[0]
            raise RankLost(
                f"trainer-{rank} has drifted away from trainer-0: its weights have the digest "
                f"{_hex(weights)} at update {updates}, those of trainer-0 {_hex(first)} at update "
                f"{at}; all start again from the newest checkpoint. If this repeats, the two "
                "compute differently: ranks need processors or GPUs of one kind"
            )


def _hex(digest: int) -> str:
    return f"{digest % 2**64:016x}"
