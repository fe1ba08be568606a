"""The last words of a container that gives up."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import zmq

from aclearn.config import Config, config_from_yaml
from aclearn.launch import StopFlag
from aclearn.wire import DirectiveMessage, StatusRequest, bind_router, load_key
from services.container.giving_up import _key_that_ends, end_run
from services.roles import ROLES
from services.wiring import ENDPOINTS
from tests.support.keys import make_keys
from tests.support.monitor import Monitor


def _config(keys_dir: object = "null") -> Config:
    text = f"{{env: {{id: CartPole-v1}}, run: {{name: run-1}}, network: {{keys_dir: {keys_dir}}}}}"
    return config_from_yaml(text)


def test_a_container_that_gives_up_insists_until_the_monitor_agrees(roles, tools) -> None:
    state, accepts = Monitor(tools), (StatusRequest, DirectiveMessage)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            end_run, ROLES["actor"], _config(), roles.monitor, "no restart is left", StopFlag()
        )
        monitor = roles("monitor-0").serve_at(roles.monitor, accepts)
        tools.next_message(monitor)  # the status; this monitor dies before it answers
        tools.next_message(monitor)
        while not asked.done():
            for routing_id, envelope in monitor.receive(0.05):
                for answer in state.take(envelope.incarnation, envelope.message):
                    monitor.send(routing_id, answer.message)
        asked.result(0)
    assert state.state.reason == "no restart is left"


def test_a_container_that_gives_up_says_that_the_run_goes_on(roles, tools, caplog) -> None:
    clock, stop = tools.Clock(), StopFlag()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            end_run, ROLES["actor"], _config(), roles.monitor, "x", stop, clock=clock
        )
        while not asked.done():  # no monitor comes
            clock.now += 0.5
    assert asked.result(0) is None
    assert "event=run_not_ended detail='the monitor has not answered'" in caplog.text


def test_only_a_container_with_the_key_of_supervisor_or_trainer_can_end_the_run(tmp_path) -> None:
    keys = make_keys(tmp_path / "keys")
    ended = {}
    for role in ("trainer", "actor"):
        pod = tmp_path / role
        pod.mkdir()
        shutil.copy2(keys / f"{role}.key", pod)
        for folder in (keys, pod):
            key = _key_that_ends(ROLES[role], _config(folder))
            may = ENDPOINTS["monitor"].accepts[DirectiveMessage]
            ended[role, folder.name] = load_key(key._file.path).name in may
    assert ended == {
        ("trainer", "keys"): True,
        ("actor", "keys"): True,  # it has the supervisor's, as in docker-compose.yml
        ("trainer", "trainer"): True,
        ("actor", "actor"): False,
    }


def test_a_container_whose_key_cannot_end_the_run_says_who_can_and_sends_nothing(
    tmp_path, caplog
) -> None:
    keys, pod = make_keys(tmp_path / "keys"), tmp_path / "pod"
    pod.mkdir()
    shutil.copy2(keys / "actor.key", pod)
    with zmq.Context() as context:
        router, address = bind_router(context, "tcp")  # without keys it hears anybody
        try:
            end_run(ROLES["actor"], _config(pod), address, "no restart is left", StopFlag())
            assert not router.poll(0)
        finally:
            router.close(linger=0)
    assert "event=run_not_ended roles=actor" in caplog.text
    assert "where the key of the supervisor or trainer is" in caplog.text
