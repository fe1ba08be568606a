"""Valid configurations in which a setting has no effect, or an unexpected one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aclearn.config.model import Config


def doubts(config: Config) -> Iterator[str]:
    """One sentence for each of them; it starts with the dotted key to change."""
    yield from config.loss.doubts(config)
    optimiser = config.optimiser
    most = config.run.max_env_steps
    if optimiser.schedule == "linear" and most and most > (optimiser.schedule_steps or most):
        yield (
            f"optimiser.schedule_steps: the rate is 0 after {optimiser.schedule_steps} of "
            f"run.max_env_steps: {most}, so that nothing is learned of the rest; set it to {most}"
        )
    if optimiser.schedule == "constant" and optimiser.schedule_steps is not None:
        yield (
            "optimiser.schedule_steps: it has no effect while optimiser.schedule is constant; set "
            "that to linear, or this to null"
        )
