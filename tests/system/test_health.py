"""`aclearn health` beside real roles, as they start and as one is killed."""

from __future__ import annotations

import signal

from tests.support.system import CARTPOLE, Run, System, free_port
from tests.support.waiting import wait_for


def test_health_follows_an_actor_from_its_start_to_its_death(system: System) -> None:
    directory = system.folder / "health"
    config = system.config(CARTPOLE, monitor={"heartbeat_every_s": 0.1, "silent_after_s": 60.0})
    address = f"tcp://127.0.0.1:{free_port()}"

    def until(words: str, status: int) -> None:
        def asked() -> bool:
            health = system.command("health")
            return (health.wait(), health.output.strip()) == (status, words)

        wait_for(asked, words, context=lambda: actor.output)

    system.environment["ACLEARN_RUNTIME_DIR"] = str(directory)
    actor = system.role("actor", config, address)
    until("actor waits for the monitor", 1)  # waits for its number
    asks_here, elsewhere = system.environment, {**system.environment}
    del elsewhere["ACLEARN_RUNTIME_DIR"]  # checks the actor's health only

    def start(role: str) -> Run:
        system.environment = elsewhere
        started = system.role(role, config, address)
        system.environment = asks_here
        return started

    monitor = start("monitor")
    until("actor-0 waits for a trainer", 1)
    trainer = start("trainer")
    until("actor-0 works", 0)
    actor.signal(signal.SIGKILL)
    actor.wait()
    until(f"actor-0 has died (process {actor.process.pid})", 1)
    for role in (trainer, monitor):
        role.signal(signal.SIGTERM)
        role.wait()
