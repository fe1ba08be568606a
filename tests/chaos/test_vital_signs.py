"""What counts as flat."""

import os

from tests.chaos.vital_signs import Sample, VitalSigns, growth


def _samples(rss, descriptors=(20,), threads=(5,)):
    longest = max(map(len, (rss, descriptors, threads)))
    columns = ([*c, *[c[-1]] * (longest - len(c))] for c in (rss, descriptors, threads))
    return [Sample(*row) for row in zip(*columns, strict=True)]


def test_a_start_and_what_swings_are_flat():
    # two samples of sixteen are the start; then it swings by 20 MB around 210
    assert growth(_samples([50, 90, *[200, 220] * 7])) == []
    # 11 MB more on 100, and eight descriptors and threads more
    assert growth(_samples([100] * 8 + [111] * 8, [20] * 8 + [28] * 8, [5] * 8 + [13] * 8)) == []


def test_what_grows_is_named_with_its_numbers():
    slowly = [100.0 + 2 * i for i in range(16)]  # 102 + … at the quarter, 126 … 130 at the end
    assert growth(_samples(slowly)) == ["resident memory from 105 to 127 MB"]
    found = growth(_samples([100.0], [20] * 8 + [29] * 8, [5] * 8 + [14] * 8))
    assert found == ["descriptors from 20 to 29", "threads from 5 to 14"]


def test_seven_samples_say_nothing():
    assert growth(_samples([100.0] * 3 + [900.0] * 4)) == []


def test_a_look_is_of_living_processes_and_each_start_has_samples_of_its_own():
    signs = VitalSigns()
    for _ in range(2):
        signs.look({"me": os.getpid(), "gone": 2**22 + 1})
    [samples] = signs.samples.values()
    assert [*signs.samples] == [("me", os.getpid())] and len(samples) == 2
    assert samples[0].rss_mb > 5 and samples[0].descriptors > 2 and samples[0].threads > 0
    signs.samples["me", 1] = _samples([100.0] * 8 + [300.0] * 8)
    assert signs.growing() == ["me (process 1): resident memory from 100 to 300 MB"]
