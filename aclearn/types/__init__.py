"""Plain data for all packages; free of torch and of sockets."""

from __future__ import annotations

from aclearn.types.action_batch import ActionBatch
from aclearn.types.action_spec import ActionSpec
from aclearn.types.architectures import (
    ACTIVATIONS,
    ARCHITECTURES,
    AUTO,
    MEMORIES,
    Convolution,
    Memory,
    ResidualSection,
)
from aclearn.types.env_spec import EnvSpec, EnvStep
from aclearn.types.episode_cohort import (
    MOST_COHORTS,
    MOST_INFO_METRICS,
    EpisodeCohort,
    bounded_cohorts,
)
from aclearn.types.flat_parameters import Shapes, flat_size, split_flat
from aclearn.types.observation_form import ObservationForm, ObservationPart
from aclearn.types.observation_spec import OBSERVATION, LeafSpec, ObservationSpec
from aclearn.types.policy_map import agents_by_policy, check_equal_spaces
from aclearn.types.policy_output import PolicyOutput, State, zeroed
from aclearn.types.policy_version import DEFAULT_POLICY, PolicyId, PolicyVersion, is_compressed
from aclearn.types.seen_steps import (
    BYTES_OF_AN_ACTOR,
    CLOSED_REPORTED,
    MOST_ID_BYTES,
    pack_seen,
    unpack_seen,
)
from aclearn.types.unroll import NO_ACTOR, ORIGIN_BITS, Unroll, UnrollSpec, origins_of
from aclearn.types.visited import Visited

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "AUTO",
    "BYTES_OF_AN_ACTOR",
    "CLOSED_REPORTED",
    "DEFAULT_POLICY",
    "MEMORIES",
    "MOST_COHORTS",
    "MOST_ID_BYTES",
    "MOST_INFO_METRICS",
    "NO_ACTOR",
    "OBSERVATION",
    "ORIGIN_BITS",
    "ActionBatch",
    "ActionSpec",
    "Convolution",
    "EnvSpec",
    "EnvStep",
    "EpisodeCohort",
    "LeafSpec",
    "Memory",
    "ObservationForm",
    "ObservationPart",
    "ObservationSpec",
    "PolicyId",
    "PolicyOutput",
    "PolicyVersion",
    "ResidualSection",
    "Shapes",
    "State",
    "Unroll",
    "UnrollSpec",
    "Visited",
    "agents_by_policy",
    "bounded_cohorts",
    "check_equal_spaces",
    "flat_size",
    "is_compressed",
    "origins_of",
    "pack_seen",
    "split_flat",
    "unpack_seen",
    "zeroed",
]
