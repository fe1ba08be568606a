"""The rounds of a population: who was trained with what, how good it was, whose weights it has.

Everything is frozen and plain data, so that a file can hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from aclearn.population.selector import Origin
from aclearn.population.space import Values
from aclearn.population.standing import DEAD, Standing, best_first

#: "waiting": not trained in this round yet; "diverged", "failed": dead; "stopped": its fitness has
#: collapsed, so that it is not trained any more.
Status = Literal["waiting", "trained", "diverged", "failed", "stopped"]


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Peak(_Plain):
    """The best fitness of a line of weights, and the rounds in a row clearly below it."""

    fitness: float
    standard_error: float
    rounds_below: int = 0


class Member(_Plain):
    """A member in one round.

    Attributes:
        values: its hyper-parameters, by key.
        weights_from: the member of the round before with whose weights it began.
        values_from: the same of the hyper-parameters, before they were mutated.
        until: agent steps of its own at which the round ends.
        fitness: mean return of the evaluator's episodes; None: dead, or not known yet.
        checkpoint: name of the checkpoint that was judged.
        restarts: how often its process was started again in the round.
        detail: why it is dead.
        peak: of its weights and those before them; None before the first fitness.
    """

    number: int
    values: dict[str, float]
    weights_from: int
    values_from: int
    until: int
    status: Status = "waiting"
    fitness: float | None = None
    standard_error: float = 0.0
    env_steps: int = 0
    checkpoint: str = ""
    restarts: int = 0
    detail: str = ""
    peak: Peak | None = None

    @property
    def is_dead(self) -> bool:
        """Whether its last round has left no usable weights."""
        return self.status in ("diverged", "failed")

    @property
    def standing(self) -> Standing:
        """What a selector sees of it."""
        fitness = DEAD if self.fitness is None or self.is_dead else self.fitness
        return Standing(self.number, fitness, self.standard_error, self.values)

    def judged(self, fitness: float, standard_error: float, env_steps: int, checkpoint: str,
               restarts: int) -> Member:  # fmt: skip
        """It after its training, with its fitness."""
        peak = self.peak
        now = Standing(self.number, fitness, standard_error, self.values)
        if peak is None or fitness >= peak.fitness:
            peak = Peak(fitness=fitness, standard_error=standard_error)
        else:
            top = Standing(self.number, peak.fitness, peak.standard_error, self.values)
            below = peak.rounds_below + 1 if top.is_clearly_above(now) else 0
            peak = peak.model_copy(update={"rounds_below": below})
        return self.model_copy(
            update={
                "status": "trained",
                "fitness": fitness,
                "standard_error": standard_error,
                "env_steps": env_steps,
                "checkpoint": checkpoint,
                "restarts": restarts,
                "peak": peak,
            }
        )

    def died(self, status: Status, detail: str, env_steps: int, restarts: int) -> Member:
        """It after a training that has left no usable weights."""
        return self.model_copy(
            update={
                "status": status,
                "fitness": None,
                "detail": detail,
                "env_steps": env_steps,
                "restarts": restarts,
            }
        )


class Round(_Plain):
    """One turn of training and judgement.

    Attributes:
        number: from 1.
        begun: whether every member has the weights that it begins with.
    """

    number: int
    members: tuple[Member, ...]
    begun: bool = False

    @property
    def waiting(self) -> list[Member]:
        """The members that are to be trained."""
        return [each for each in self.members if each.status == "waiting"]

    @property
    def standings(self) -> list[Standing]:
        """The members as a selector sees them; call it after all were judged."""
        return [each.standing for each in self.members]

    @property
    def ranked(self) -> list[Member]:
        """The living members, the best first."""
        order = [each.member for each in best_first(self.standings) if not each.is_dead]
        return [self.members[number] for number in order]

    @property
    def copies(self) -> int:
        """Members that began with the weights of another."""
        return sum(each.weights_from != each.number for each in self.members)

    def with_member(self, member: Member) -> Round:
        """It with another state of one member."""
        members = [member if each.number == member.number else each for each in self.members]
        return self.model_copy(update={"members": tuple(members)})

    def next(self, origins: Sequence[Origin], *, round_steps: int, stop_after: int | None) -> Round:
        """The round after this one, in which no member has begun.

        A member that keeps its own weights, which are dead, or which have been clearly below their
        peak for `stop_after` rounds in a row, is not trained.
        """
        members = []
        for before, origin in zip(self.members, origins, strict=True):
            parent = self.members[origin.weights_from]
            below = before.peak.rounds_below if before.peak is not None else 0
            update = {
                "values": dict(origin.values),
                "weights_from": origin.weights_from,
                "values_from": origin.values_from,
                "until": before.env_steps + round_steps,
                "restarts": 0,
            }
            if parent.number != before.number:
                update |= {"status": "waiting", "detail": "", "fitness": None, "peak": parent.peak}
            elif not before.is_dead and (stop_after is None or below < stop_after):
                update |= {"status": "waiting", "fitness": None}
            else:  # it is not trained, and so has the values that it was trained with
                update |= {"values": before.values, "values_from": before.number}
                update |= {} if before.is_dead else {"status": "stopped"}
            members.append(before.model_copy(update=update))
        return Round(number=self.number + 1, members=tuple(members))


class Best(_Plain):
    """The best agent so far."""

    round: int
    member: int
    fitness: float
    standard_error: float
    values: dict[str, float]
    env_steps: int
    checkpoint: str


class Lineage(_Plain):
    """All rounds of a population; the last one goes on, or is over.

    Attributes:
        time_s: seconds of work so far.
    """

    rounds: tuple[Round, ...]
    best: Best | None = None
    time_s: float = 0.0

    @classmethod
    def begin(cls, first: Sequence[Values], *, round_steps: int) -> Lineage:
        """A population before its first round."""
        members = [
            Member(
                number=number,
                values=dict(values),
                weights_from=number,
                values_from=number,
                until=round_steps,
            )
            for number, values in enumerate(first)
        ]
        return cls(rounds=(Round(number=1, members=tuple(members)),))

    @property
    def now(self) -> Round:
        """The last round."""
        return self.rounds[-1]

    @property
    def judged(self) -> Round | None:
        """The last round whose members were all judged; None before the first."""
        return next((each for each in reversed(self.rounds) if not each.waiting), None)

    @property
    def deaths(self) -> int:
        """How often a member has died; one that stays dead is counted once."""
        living, deaths = dict[int, bool](), 0
        for each in (member for round_ in self.rounds for member in round_.members):
            lived = living.get(each.number, True) or each.weights_from != each.number
            deaths += each.is_dead and lived
            living[each.number] = not each.is_dead
        return deaths

    def with_now(self, now: Round) -> Lineage:
        """It with another state of the last round."""
        return self.model_copy(update={"rounds": (*self.rounds[:-1], now)})

    def with_next(self, following: Round) -> Lineage:
        """It with one round more."""
        return self.model_copy(update={"rounds": (*self.rounds, following)})

    def new_best(self) -> Best | None:
        """The best of the last round, if it is better than all before; None if it is not."""
        ranked = self.now.ranked
        if not ranked or ranked[0].status != "trained":
            return None
        top = ranked[0]
        assert top.fitness is not None
        if self.best is not None and top.fitness <= self.best.fitness:
            return None
        return Best(
            round=self.now.number,
            member=top.number,
            fitness=top.fitness,
            standard_error=top.standard_error,
            values=top.values,
            env_steps=top.env_steps,
            checkpoint=top.checkpoint,
        )
