"""A population as lines to draw."""

from __future__ import annotations

from pathlib import Path

from aclearn.population import Lineage, Origin
from aclearn.population.file import write_lineage
from aclearn.views.population_panels import read_panels
from tests.support.searches import RATE


def test_fitness_follows_the_weights_and_a_key_follows_the_values(tmp_path: Path) -> None:
    lineage = Lineage.begin([{RATE: 0.1}, {RATE: 0.2}], round_steps=10)
    for fitness in ([5.0, 1.0], [6.0, 7.0]):
        now = lineage.now
        for member, mean in zip(now.members, fitness, strict=True):
            now = now.with_member(member.judged(mean, 0.5, 10, "000001-1", 0))
        lineage = lineage.with_now(now)
        lineage = lineage.model_copy(update={"best": lineage.new_best() or lineage.best})
        # member 1 has the weights of member 0, and values of its own
        origins = [Origin.stays(now.standings[0]), Origin(0, 1, {RATE: 0.3})]
        lineage = lineage.with_next(now.next(origins, round_steps=10, stop_after=None))
    write_lineage(tmp_path, lineage)
    fitness, rates = read_panels(tmp_path)
    assert (fitness.copies, fitness.ancestors) == ([((1, 5.0), (2, 7.0))], [(1, 5.0), (2, 7.0)])
    assert (rates.copies, rates.ancestors) == ([], [(1, 0.2), (2, 0.3)])
    assert rates.stays == [((1, 0.1), (2, 0.1)), ((1, 0.2), (2, 0.3))]
    assert not rates.log  # less than ten times
