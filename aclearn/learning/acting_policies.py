"""The uncompressed policies of the versions that acted, which split an importance ratio in two."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aclearn.learning.batch import Batch
from aclearn.learning.networks import Networks
from aclearn.learning.published import PublishedWeights
from aclearn.policies import Architecture


class ActingPolicies:
    """Computes log π_v(a) of a batch's steps, with the weights that were published as version v.

    No message carries it: the trainer has published these weights itself. It costs one forward
    pass of the environments for each version that acted in them, so one of the whole batch where no
    actor changed its policy within an unroll. Several threads may call it; they take turns.

    Args:
        published: keeps as many versions as can still act.
        options: of `Networks`, as those of the trainer's workers, so that rounding is the same.
    """

    def __init__(
        self, architecture: Architecture, published: PublishedWeights, **options: Any
    ) -> None:
        self._published = published
        self._networks = Networks(architecture.acting(), **options)
        self._names = [name for name, _ in self._networks.network.named_parameters()]
        self._lock = threading.Lock()

    @torch.no_grad()
    def log_probs(self, batch: Batch) -> Tensor:
        """`[T, B]` float32, of the actions taken; NaN of versions that are not kept.

        A policy with a state begins with the state that the actor's had.
        """
        made = torch.full_like(batch.behaviour_log_prob, torch.nan)
        with self._lock:
            for version in np.unique(batch.versions):
                kept = self._published.of(int(version))
                if kept is None:
                    continue
                weights = kept.on_device
                self._networks.copy([weights[name] for name in self._names])
                at = torch.from_numpy(batch.versions == version).to(made.device)
                columns = torch.from_numpy((batch.versions == version).any(0).nonzero()[0])
                columns = columns.to(made.device)
                log_probs = self._of_columns(batch, columns)
                made[:, columns] = torch.where(at[:, columns], log_probs, made[:, columns])
        return made

    def _of_columns(self, batch: Batch, columns: Tensor) -> Tensor:
        steps = len(batch.actions)
        leaves = {name: leaf[:steps, columns] for name, leaf in batch.observations.items()}
        state = tuple(each[columns] for each in batch.state)
        output = self._networks.unroll(leaves, state, batch.starts[:-1, columns])
        masks = None if batch.step_masks is None else batch.step_masks[:, columns]
        policy = self._networks.distribution(output.parameters, masks)
        return policy.log_prob(batch.actions[:, columns])
