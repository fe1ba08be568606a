"""Settings without which a run does not measure a strategy's indicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aclearn.config import Config
from aclearn.metrics.names import LEAST_FOR_KL_MAX


class _Needs(NamedTuple):
    met: Callable[[Config], bool]
    #: The setting that is missing, as text.
    setting: str


_COMPARED = _Needs(
    lambda config: config.compressor.fidelity_observations > 0,
    "compressor.fidelity_observations above 0, so that artifacts are compared",
)
_MAX_OF_ENOUGH = _Needs(
    lambda config: config.compressor.fidelity_observations >= LEAST_FOR_KL_MAX,
    f"compressor.fidelity_observations of {LEAST_FOR_KL_MAX} or more, for a maximum over as many",
)
_V_TRACE = _Needs(
    lambda config: any(corrector.name in ("vtrace", "auto") for corrector in config.correctors),
    "vtrace among correctors",
)
_TWO_POLICIES = _Needs(
    lambda config: config.actors.original_share > 0.0,
    "actors.original_share above 0, so that the original policy plays some episodes",
)
#: Metric → its needs.
_NEEDS: dict[str, _Needs] = {
    **{f"compressor_{n}": _COMPARED for n in ("kl_mean", "kl_variance", "agreement")},
    "compressor_kl_max": _MAX_OF_ENOUGH,
    "clipped_rho_share": _V_TRACE,
    "clipped_c_share": _V_TRACE,
    "reward_gap": _TWO_POLICIES,
    "behaviour_kl": _Needs(
        lambda config: config.actors.behaviour_parameters, "actors.behaviour_parameters to true"
    ),
    "behaviour_kl_estimate": _Needs(
        lambda config: not config.actors.behaviour_parameters,
        "actors.behaviour_parameters to false, or follow behaviour_kl",
    ),
}


def needs_of(figure: str, config: Config) -> str | None:
    """The setting that the run needs to measure a metric; None if none is missing."""
    needs = _NEEDS.get(figure)
    return None if needs is None or needs.met(config) else needs.setting
