"""Steps by chain: counted, and bounded whatever actors send."""

from __future__ import annotations

from services.trainer.gauges import ChainSteps


def test_steps_are_counted_by_chain_and_chains_that_no_ladder_has_are_one(tools) -> None:
    steps = ChainSteps()
    steps.add(tools.make_unroll(chains=["none"]).steps_by_chain())
    assert steps.counters() == {}  # the trainer's weights act: nothing to tell apart
    one = sum(tools.make_unroll().steps_by_chain().values())
    for n in range(40):
        steps.add(tools.make_unroll(chains=[f"c{n}"]).steps_by_chain())
    counters = steps.counters()
    assert counters["chain_steps.none"] == counters["chain_steps.c14"] == one
    assert counters["chain_steps.other"] == 25 * one and len(counters) == 17
