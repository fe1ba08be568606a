"""What can go wrong between a policy and its artifact."""

from __future__ import annotations

from aclearn.errors import AclearnError, ConfigError


class ChainError(ConfigError):
    """A chain that cannot work: an unknown link, a wrong value, an impossible order."""


class RefusedTensors(AclearnError):
    """Weights that do not fit their graph or are not finite; the old policy stays."""


class RefusedArtifact(AclearnError):
    """An artifact that is damaged, of another policy or not what it says; the old one stays."""


class NeedsObservations(AclearnError):
    """A link needs observations that actors visited, and there are none yet."""


class DivergedTraining(AclearnError):
    """A link's training gave numbers that are not finite; they were not published."""


class DeadStudent(AclearnError):
    """A student's units are silent in all states, so that it learns no more; a new one begins."""
