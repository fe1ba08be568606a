"""A stream that captures nothing, for tests without a GPU."""

from __future__ import annotations

from collections.abc import Callable


class WarmUps:
    """Runs a step three times before it is the captured one, as `CudaStream.capture` does."""

    device = "cpu"

    def capture(self, step: Callable[[], None], generators: object = ()) -> Callable[[], None]:
        """The step, after its runs."""
        for _ in range(3):
            step()
        return step
