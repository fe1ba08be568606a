"""The group `population`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field
from typing_extensions import override

from aclearn.config import _explain
from aclearn.config._fields import Group, Whole
from aclearn.config._named import Named, NamedArguments

_KEY: Final = "population.mutate"
#: Groups and keys that may differ between members and rounds: a run continues with other values.
MUTABLE: Final = (
    "optimiser",
    "loss",
    "correctors",
    "trainer.epochs",
    "trainer.minibatches",
    "replay.ratio",
    "replay.priority_exponent",
    "replay.importance_exponent",
)


class SelectorConfig(NamedArguments):
    """The selector; in YAML `name` or `name: {arguments}`."""

    table = Named("aclearn.population:SELECTORS")


def _flat(ranges: Any, prefix: str = "") -> Any:
    """Sections of keys as dotted keys: `optimiser: {learning_rate: …}` as well."""
    if not isinstance(ranges, Mapping):
        return ranges
    found: dict[str, Any] = {}
    for key, value in ranges.items():
        inner = _flat(value, f"{prefix}{key}.")
        found |= inner if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


_Ranges = dict[str, list[float] | dict[str, Any]]


class PopulationConfig(Group):
    """Members that evolve together, by `aclearn evolve` (docs/populations.md).

    `aclearn train` trains one run, whatever this group says.
    """

    members: Whole | None = Field(
        default=None,
        ge=2,
        le=1000,
        description="number of members, each a run of its own; null: no population",
    )
    rounds: Whole = Field(
        default=20, ge=1, le=100_000, description="rounds of training, judgement and selection"
    )
    round_steps: Whole = Field(
        default=50_000,
        ge=1,
        description="agent steps of a member in a round, as run.max_env_steps counts them",
    )
    selector: SelectorConfig = Field(
        default_factory=lambda: SelectorConfig.model_validate("genetic"),
        description="breeds the next round; yours is a subclass of aclearn.population.Selector",
    )
    mutate: Annotated[
        dict[str, list[float]], BeforeValidator(_flat, json_schema_input_type=_Ranges)
    ] = Field(
        default_factory=dict,
        description="hyper-parameters that evolve, each with its range: "
        "optimiser.learning_rate: [1e-5, 1e-2]; one of a corrector is correctors.vtrace.lambda",
    )
    first: Annotated[
        dict[str, list[float]], BeforeValidator(_flat, json_schema_input_type=_Ranges)
    ] = Field(
        default_factory=dict,
        description="narrower ranges of the first values of keys of mutate; random_search draws "
        "from the whole ones",
    )
    seed: Whole = Field(
        default=1,
        ge=0,
        le=2**31 - 1,
        description="seed of first values, selection, mutation and the evaluated episodes; a "
        "member's own seed is run.seed plus its number",
    )
    stop_after: Whole | None = Field(
        default=5,
        ge=1,
        description="rounds in a row in which a member's fitness is clearly below the best of its "
        "weights, after which it is not trained any more; null: it always is",
    )

    @property
    def enabled(self) -> bool:
        """Whether there is a population."""
        return self.members is not None

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if not self.enabled:
            for key in self.changed(*(key for key in type(self).model_fields if key != "members")):
                yield (
                    f"population.{key}: it has no effect without a population; set "
                    "population.members, for instance to 8, or remove this"
                )
            return
        yield from self.selector.contradictions(config)
        if config.policies:
            yield (
                "policies: a population has members of one policy, whose fitness is one number; "
                "remove this, or population.members"
            )
        for key, ends in self.mutate.items():
            yield from _faults(key, ends, config)
        for key, ends in self.first.items():
            low, high = (self.mutate.get(key) or [inf, -inf])[:2]
            if len(ends) != 2 or not low <= ends[0] < ends[1] <= high:
                yield (
                    f"population.first: {key}: expected a range within that of population.mutate, "
                    f"got {ends}; remove it, or widen that"
                )
        if config.evaluator.stop_after is not None:
            yield (
                "evaluator.stop_after: it would end a member within a round; remove it, and set "
                f"population.stop_after to {config.evaluator.stop_after} or another number"
            )


class Mutable(NamedTuple):
    """A hyper-parameter that may be mutated.

    Attributes:
        value: that of the configuration.
        whole: whether it must be a whole number.
    """

    value: float | None
    whole: bool


def mutable(config: Any, key: str) -> Mutable | str:
    """The hyper-parameter of this key, or why it may not be mutated: the end of a sentence."""
    section, _, leaf = key.partition(".")
    allowed = any(f"{key}.".startswith(f"{each}.") for each in MUTABLE)
    group: Any = getattr(config, section, None)
    if section == "correctors":
        name, _, leaf = leaf.partition(".")
        group = next((each.arguments for each in config.correctors if each.name == name), None)
        if group is None:
            listed = ", ".join(each.name for each in config.correctors)
            return f"names no corrector of this configuration; there are {listed or 'none'}"
    values = group.model_dump(by_alias=True) if isinstance(group, Group) else {}
    if not isinstance(group, Group) or leaf not in values:
        meant = _explain.nearest(type(config), key, list(values))
        hint = f"; did you mean {meant}?" if meant and meant != key else ""
        return f"is not a key of this configuration{hint}"
    value = values[leaf]
    field = _explain.fields_of(type(group)).get(leaf)
    kind = _explain.expected(field) if field is not None else ""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not allowed or not (number or (value is None and "number" in kind)):
        what = f"it is {_explain.got(value)}" if allowed else "another value would be another run"
        return f"may not be mutated ({what}); numbers of {', '.join(MUTABLE)} may"
    whole = kind.startswith("whole number") if kind else isinstance(value, int)
    return Mutable(value, whole)


def _faults(key: str, ends: list[float], config: Any) -> Iterator[str]:
    found = mutable(config, key)
    if isinstance(found, str):
        yield f"{_KEY}: {key} {found}"
    elif len(ends) != 2 or not ends[0] < ends[1]:
        yield (
            f"{_KEY}: {key}: expected its least and its largest value, for instance [1e-5, 1e-2], "
            f"got {ends}"
        )
    elif found.whole and any(end != int(end) for end in ends):
        yield f"{_KEY}: {key}: expected whole numbers, got {ends}"
