"""A connection that loses what is on it: actors send their unrolls again, and nothing twice."""

from __future__ import annotations

import time

from tests.chaos.invariants import check_lines_of, check_nothing_learned_twice
from tests.chaos.relay import ANNOUNCED, HERE, Weather, relays
from tests.support.system import CARTPOLE, System


def test_a_run_goes_on_after_a_connection_lost_all_unrolls_in_flight(system: System) -> None:
    with relays(("unrolls", "weights", "monitor")) as (found, ports):
        config = system.config(
            CARTPOLE,
            run={"audit": True},
            actors={"max_in_flight_unrolls": 2},
            monitor={"port": ports.pop("monitor")},
            network={"bind_host": HERE, "announce_host": ANNOUNCED, "ports": ports},
        )
        run = system.train(config)
        run.wait_until_learning(beyond=1000)
        for _ in range(2):
            found["unrolls"].set(Weather("drop"))
            time.sleep(2.0)  # longer than an answer takes: all actors wait
            found["unrolls"].set(Weather())
            before = run.last()["learned_steps"]
            run.wait_for(
                lambda before=before: run.last()["learned_steps"] > before + 200,
                "the actors have sent again what was lost",
                within_s=10.0,
            )
        check_lines_of(run)
        run.finish()
        assert check_nothing_learned_twice(run.folder) > 0
