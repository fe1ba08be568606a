"""A log of what was learned, to see that nothing was learned twice."""

from __future__ import annotations

import hashlib
import logging

from torch import Tensor
from typing_extensions import override

from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.sources.source import SourceAround

_LOGGER = logging.getLogger(__name__)

#: Bytes of a digest: two of ten million columns are equal by chance once in 400 000 runs.
_DIGEST_BYTES = 8


class Audited(SourceAround):
    """The batches of another source; each that was learned is a line of the process's log.

    `event=batch_learned columns=<digest>,<digest>,…` has a digest for each environment's steps of
    the batch. So a part of an unroll that is learned again is found in any other batch, and in the
    log of any later start of the trainer. Equal steps have equal digests: it is for environments
    whose observations are numbers that hardly come twice.
    """

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        return self.inner.next(timeout_s, worker)

    @override
    def learned(self, batch: Batch, errors: Tensor | None = None) -> None:
        _LOGGER.info("event=batch_learned columns=%s", ",".join(column_digests(batch)))
        self.inner.learned(batch, errors)


def column_digests(batch: Batch) -> list[str]:
    """A digest in hexadecimal digits of each environment's observations, actions and rewards."""
    parts = [*batch.observations.values(), batch.actions, batch.behaviour_log_prob, batch.rewards]
    rows = [part.movedim(1, 0).contiguous().cpu().numpy() for part in parts]
    digests = []
    for column in zip(*rows, strict=True):
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in column:
            digest.update(part.tobytes())
        digests.append(digest.hexdigest())
    return digests
