"""T steps of every environment whose actions torch computes between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from aclearn.policies.cuda_stream import CudaStream, captured
from aclearn.resident.acting_network import ActingNetwork
from aclearn.resident.resident import Resident
from aclearn.resident.slices import Slice


class TorchRollout(ABC):
    """Steps on the CPU by slices, on a GPU as one CUDA graph.

    Args:
        acting: the networks, whose states go on from rollout to rollout.
        others: further tensors that a step changes.
        stream: the current one, on a GPU.
    """

    def __init__(
        self,
        envs: Resident,
        acting: Sequence[ActingNetwork],
        *,
        others: Sequence[Tensor] = (),
        stream: CudaStream | None = None,
    ) -> None:
        self._envs, self._acting, self._others, self._stream = envs, acting, others, stream
        self._replay: Callable[[], object] | None = None

    @property
    def _steps(self) -> int:
        """T."""
        return len(self._envs.kinds[0].buffers.rewards)

    def run(self, check: Callable[[], None] = lambda: None) -> None:
        """T steps of every environment; the first observations are the last ones of before.

        Args:
            check: called before each step on the CPU, in every thread. Where it raises,
                environments, noise and states are as before the call.
        """
        if self._stream is None:
            back = self._way_back()
            try:
                self._run_in_torch(check)
            except BaseException:
                back()
                raise
        else:
            if self._replay is None:
                self._replay = self._captured(self._stream)
            self._replay()
        self._envs.advance(self._steps)

    @abstractmethod
    def _run_slice(self, check: Callable[[], None], part: Slice) -> None:
        """T steps of the environments of a slice."""

    def _captured(self, stream: CudaStream) -> Callable[[], object]:
        """The steps in torch as one CUDA graph."""
        back = self._way_back()
        replay = captured(stream, self._run_in_torch, what="resident rollout")
        back()  # a capture runs the steps before
        return replay

    def _way_back(self) -> Callable[[], None]:
        """Restores environments, noise and state as they are now, and discards the sums since."""
        envs, saved = self._envs, self._envs.snapshot()
        tensors = [*(part for acting in self._acting for part in acting.state), *self._others]
        kept = [tensor.clone() for tensor in tensors]

        def back() -> None:
            envs.restore(saved)
            envs.discard_sums()
            for tensor, before in zip(tensors, kept, strict=True):
                tensor.copy_(before)

        return back

    def _run_in_torch(self, check: Callable[[], None] = lambda: None) -> None:
        self._envs.carry_over()
        for acting in self._acting:
            for first, part in zip(acting.first_state, acting.state, strict=True):
                first.copy_(part)
        self._envs.slices.run(partial(self._run_slice, check))
