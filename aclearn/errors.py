"""The errors that aclearn raises on purpose, and words for messages."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable


class AclearnError(Exception):
    """Base of every error that a user can mend; its text is shown without a traceback."""


class ConfigError(AclearnError):
    """A configuration that cannot be used."""


class EnvironmentFailure(AclearnError):
    """An environment that cannot be made, breaks its contract, or has failed too often."""


class MarketError(EnvironmentFailure):
    """Prices, indicators or periods that no trading environment can be made of."""


class WireError(AclearnError):
    """A message that is refused.

    Attributes:
        reason: one of a small fixed set of words, fit for a counter's label.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class CheckpointError(AclearnError):
    """A checkpoint that cannot be written, is damaged, or belongs to another architecture."""


class ArgumentError(AclearnError, ValueError):
    """An argument of a Python function that cannot be used."""


class HiddenPackage(AclearnError, ImportError):
    """A module of the user's that hides a package of aclearn."""


class LearningLost(AclearnError):
    """A run that ended and has learned nothing, or whose last files could not be written."""


class RunFolderError(AclearnError):
    """A run folder that is missing, is not a run folder, or cannot be written."""


class RunFolderTaken(RunFolderError):
    """A run folder that exists already, or that another process writes."""


class EndpointError(AclearnError):
    """An address that cannot be bound, is in use, or must not be bound without keys."""


class SharingError(AclearnError):
    """Memory that cannot be shared between processes."""


class GroupError(AclearnError):
    """Trainer processes that cannot learn as one: one is missing, or differs from the others."""


class RankLost(AclearnError):
    """Another rank that does not answer: all ranks start again from the newest checkpoint."""


class RoleFailure(AclearnError):
    """A role that died more often than the supervisor may restart it."""


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The end of a message: the known names that are most similar to a wrong one, or nothing.

    Args:
        cutoff: least similarity, from 0 to 1.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=cutoff)
    return "; did you mean " + " or ".join(by_lower[low] for low in found) + "?" if found else ""


#: Module, in whatever case → the extra of ours that installs it.
_EXTRAS = {
    **{name: name for name in ("box2d", "mujoco", "minigrid", "pettingzoo")},
    **{name: name for name in ("mlflow", "trackio", "wandb")},
    "minari": "minari",
    "prometheus_client": "prometheus",
}


def install_hint(error: BaseException) -> str:
    """Sentences on installing the extra whose module the error, or a cause of it, lacks.

    Empty if there is none.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            module = cause.name.partition(".")[0]
            if extra := _EXTRAS.get(module.lower()):
                return f"{module} is not installed; pip install 'aclearn[{extra}]'"
        cause = cause.__cause__ or cause.__context__
    return ""


def words_of(error: BaseException) -> str:
    """Class and message of an error in one line, its first 1000 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")[:1000]


def kind_of(value: object) -> str:
    """The class of a value with its article: `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def trace_of(error: BaseException) -> str:
    """The traceback of an error as text, its last 4000 characters."""
    return "".join(traceback.format_exception(error))[-4000:]
