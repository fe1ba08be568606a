"""Errors between a policy and its artifact."""

from __future__ import annotations

from aclearn.errors import AclearnError, ConfigError


class ChainError(ConfigError):
    """An invalid chain: an unknown link, a wrong value, an impossible order."""


class RefusedTensors(AclearnError):
    """Weights that do not fit their graph or are not finite; the old policy stays."""


class RefusedArtifact(AclearnError):
    """An artifact that is damaged, of another policy, or fails its probe; the old one stays."""


class NeedsObservations(AclearnError):
    """A link needs visited observations, and there are none yet."""


class DivergedTraining(AclearnError):
    """A link's training gave numbers that are not finite; they were not published."""


class DeadStudent(AclearnError):
    """All units of a student are silent, so it cannot learn; a new one starts."""
