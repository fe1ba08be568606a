"""The rounds of a population as lines of text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from aclearn.metrics.formatting import amount, duration, printable, score
from aclearn.population import Lineage, Member, Round


class PopulationConsole:
    """Writes a line for each member that has been judged, and one for each round.

    Args:
        rounds: number of rounds of the population.
    """

    def __init__(self, rounds: int, *, stream: TextIO | None = None) -> None:
        self._rounds, self._stream = rounds, sys.stdout if stream is None else stream

    def member(self, round_: Round, member: Member) -> None:
        """Show what has become of a member."""
        if member.fitness is None:
            words = f"{member.status}: {member.detail}"
        else:
            words = f"fitness {_fitness(member.fitness, member.standard_error)}"
        again = f", {member.restarts} restarts" if member.restarts else ""
        values = "".join(f", {_leaf(key)} {value:.3g}" for key, value in member.values.items())
        self._say(f"round {round_.number}, member {member.number}: {words}{values}{again}")

    def round(self, line: Mapping[str, Any], lineage: Lineage) -> None:
        """Show a round that is over, by its metrics."""
        words = [f"round {line['round']} of {self._rounds} is over"]
        if line["living"]:
            best, mean, worst = (_mean(line[f"fitness_{name}"]) for name in _FITNESSES)
            words.append(f"fitness {worst} to {best}, mean {mean}")
        if lineage.best is not None:
            of = lineage.best
            words.append(
                f"best so far {_fitness(of.fitness, of.standard_error)} "
                f"(member {of.member}, round {of.round})"
            )
        counts = {
            "copies": line["copies"],
            "dead so far": line["deaths"],
            "stopped": line["stopped"],
        }
        words += [f"{count} {name}" for name, count in counts.items() if count]
        words.append(f"{amount(line['env_steps'])} agent steps in {duration(line['time_s'])}")
        self._say(", ".join(words))

    def note(self, text: str) -> None:
        """Show an event."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()


_FITNESSES = ("best", "mean", "worst")


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _mean(value: float) -> str:
    """A return; of trading they are small."""
    return score(value) if abs(value) >= 1.0 else f"{value:.3g}"


def _fitness(mean: float, error: float) -> str:
    return f"{_mean(mean)} ± {error:.2g}"
