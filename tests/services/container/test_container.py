"""A role as the only process of its container: its checks before it works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
import zmq
from typer.testing import CliRunner

from aclearn.config import Config, load_config
from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.launch import StopFlag
from aclearn.wire import DirectiveMessage, bind_router, decode, load_key
from services.cli import app
from services.container import container
from services.role.health import FAILED, HealthReport
from services.roles import ROLES
from services.start.folder import role_folder
from services.wiring import ENDPOINTS
from tests.support.keys import make_keys
from tests.support.monitor import Monitor
from tests.support.waiting import DEADLINE_S

_CONFIG = "env: {id: CartPole-v1}\npolicy: {architecture: mlp}\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Config]:
    """The configuration of run "r" with overrides."""
    path = tmp_path / "cartpole.yaml"
    path.write_text(_CONFIG)

    def load(*overrides: str) -> Config:
        return load_config(path, [f"run.dir={tmp_path / 'runs'}", "run.name=r", *overrides])

    return load


def test_a_container_listens_at_ports_that_can_be_published_and_announces_its_machine(load) -> None:
    network = load(*container.network_overrides({})).network
    ports = [network.ports.unrolls, network.ports.weights]
    ports += [network.ports.predictions, network.ports.artifacts]
    assert (network.bind_host, network.announce_host) == ("0.0.0.0", None)
    assert (network.keys_dir, ports) == ("/keys", [5556, 5557, 5558, 5559])
    announced = container.network_overrides({"ACLEARN_ANNOUNCE_HOST": "10.0.0.7"})
    assert load(*announced).network.announce_host == "10.0.0.7"
    # and ARGS come last, and win
    assert load(*announced, "network.ports.weights=7000").network.ports.weights == 7000


def test_a_role_without_use_is_named_with_the_key_and_lock_step_is_refused(load) -> None:
    for role in ("monitor", "trainer", "actor"):
        assert container.nothing_to_do(ROLES[role], load()) is None
    assert "actors.inference is local" in str(container.nothing_to_do(ROLES["predictor"], load()))
    assert "compressor.chain is empty" in str(container.nothing_to_do(ROLES["compressor"], load()))
    used = load("actors.inference=predictor", "compressor.chain=[onnx]")
    assert container.nothing_to_do(ROLES["predictor"], used) is None
    assert container.nothing_to_do(ROLES["compressor"], used) is None
    with pytest.raises(ConfigError, match="docker-compose run --rm --no-deps trainer train"):
        container.nothing_to_do(ROLES["actor"], load("run.deterministic=true"))


def test_a_container_that_gives_up_ends_the_run_as_its_supervisor(load, tools) -> None:
    monitor = Monitor(tools)
    with zmq.Context() as context:
        router, address = bind_router(context, "tcp")
        try:
            container._end_run(
                ROLES["actor"], load("network.keys_dir=null"), address, "no restart is left"
            )
            for _ in range(2):
                assert router.poll(int(1000 * DEADLINE_S))
                _, *frames = router.recv_multipart()
                envelope = decode(frames)
                monitor.take(envelope.incarnation, envelope.message)
        finally:
            router.close(linger=0)
    assert monitor.state.reason == "no restart is left"


def test_only_a_container_with_the_key_of_supervisor_or_trainer_can_end_the_run(
    load, tools, tmp_path
) -> None:
    keys = make_keys(tmp_path / "keys")
    ended = {}
    for role in ("trainer", "actor"):
        pod = tmp_path / role
        pod.mkdir()
        shutil.copy2(keys / f"{role}.key", pod)
        for folder in (keys, pod):
            key = container._key_that_ends(ROLES[role], load(f"network.keys_dir={folder}"))
            may = ENDPOINTS["monitor"].accepts[DirectiveMessage]
            ended[role, folder.name] = load_key(key._file.path).name in may
    assert ended == {
        ("trainer", "keys"): True,
        ("actor", "keys"): True,  # it has the supervisor's, as in docker-compose.yml
        ("trainer", "trainer"): True,
        ("actor", "actor"): False,
    }


def test_a_container_whose_key_cannot_end_the_run_says_who_can_and_sends_nothing(
    load, tmp_path, caplog
) -> None:
    keys, pod = make_keys(tmp_path / "keys"), tmp_path / "pod"
    pod.mkdir()
    shutil.copy2(keys / "actor.key", pod)
    with zmq.Context() as context:
        router, address = bind_router(context, "tcp")  # without keys it hears anybody
        try:
            config = load(f"network.keys_dir={pod}")
            container._end_run(ROLES["actor"], config, address, "no restart is left")
            assert not router.poll(0)
        finally:
            router.close(linger=0)
    assert "event=run_not_ended roles=actor" in caplog.text
    assert "where the key of the supervisor or trainer is" in caplog.text


def test_the_folder_of_another_run_makes_way_until_that_run_has_learned_something(load) -> None:
    here, there = load(), load("env.id=Acrobot-v1")
    assert container.finished(here) is None
    with role_folder(there, "monitor") as folder:
        folder.metrics_path.write_text('{"learned_steps": 0}\n')
    assert container.finished(here) is None
    folder.metrics_path.write_text('{"learned_steps": 1}\n')
    with pytest.raises(ConfigError, match=r"env\.id is 'Acrobot-v1' there, 'CartPole-v1' here"):
        container.finished(here)
    assert container.finished(there) is None


def test_the_end_of_the_process_before_is_logged_with_its_memory(monkeypatch) -> None:
    died = HealthReport("actor-1", 7, 100.0, 60.0, "", 0, 396 * 2**20)
    monkeypatch.setattr(container, "memory_limit_bytes", lambda: 400 * 2**20)
    assert container.words_of(died) == (
        "its previous process was killed, at most a second after it used 396 of 400 MiB, "
        "the limit of its container"
    )
    monkeypatch.setattr(container, "memory_limit_bytes", lambda: None)
    assert container.words_of(died) == "its previous process was killed"
    failed = HealthReport("actor-1", 7, 100.0, 60.0, FAILED, 0, 396 * 2**20)
    assert container.words_of(failed).startswith("its previous process failed; ")


@pytest.mark.parametrize(
    ("path", "override", "words"),
    [
        ("configs/pongg.yaml", "run.seed=2", "configs/pongg.yaml: there is no such configuration"),
        ("cartpole.yaml", "run.sed=2", "run.sed is not a known key; did you mean run.seed?"),
        ("cartpole.yaml", "run.deterministic=true", "so containers have nothing to do"),
    ],
)
def test_what_a_restart_cannot_mend_is_one_line_and_a_status_that_starts_nothing_again(
    path: str, override: str, words: str, load, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    # it would change this process for good
    monkeypatch.setattr(container, "become_owner", lambda work: None)
    monkeypatch.setattr(container, "_end_run", lambda *_: None)
    load()
    stop, run_role = StopFlag(), lambda *_, **__: pytest.fail("no role can be run")
    status = container.run_contained(
        ROLES["actor"], path, "tcp://monitor:5555", [override], stop, run_role
    )
    [line] = capsys.readouterr().err.splitlines()
    assert (status, words in line) == (0, True), line


@pytest.mark.parametrize(
    ("heard", "is_over", "reason"),
    [
        (False, False, "the monitor has ended before its first answer"),
        (True, True, "the run is over, and the monitor has ended before this role"),
        (True, False, None),
    ],
)
def test_a_role_ends_without_its_monitor_only_if_nothing_is_left_to_wait_for(
    monkeypatch, tmp_path, heard, is_over, reason
) -> None:
    looks = iter(range(1000))

    def no_address(*_: object) -> None:
        if next(looks) >= 100:
            stop.set("the test")
        raise OSError

    monkeypatch.setattr(container.socket, "getaddrinfo", no_address)
    monkeypatch.setattr(container, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(container, "_MONITOR_AWAY_S", 0.02)
    monkeypatch.setattr(
        container, "read_reports", lambda _: [SimpleNamespace(heard_from_monitor=heard)]
    )
    stop = StopFlag()
    container._watch_monitor(tmp_path, stop, lambda: is_over)
    assert stop.reason == (reason or "the test")


@pytest.mark.parametrize(("role", "ends"), [("actor", 1), ("evaluator", 0)])
def test_an_optional_role_that_cannot_work_does_not_end_the_run(
    role: str, ends: int, load, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(container, "become_owner", lambda work: None)
    monkeypatch.setattr(container, "_watch_monitor", lambda *_: None)
    ended: list[str] = []
    monkeypatch.setattr(container, "_end_run", lambda spec, config, monitor, why: ended.append(why))
    load()

    def run_role(*_, **__):
        raise EnvironmentFailure("environment a failed 6 times")

    stop, override = StopFlag(), ["evaluator.every_s=60"]
    arguments = (ROLES[role], "cartpole.yaml", "tcp://monitor:5555", override, stop, run_role)
    assert container.run_contained(*arguments) == 0
    assert len(ended) == ends


def test_every_role_has_its_container() -> None:
    path = Path(__file__).parents[3] / "docker-compose.yml"
    services = yaml.safe_load(path.read_text())["services"]
    for role in ROLES:
        assert services[role]["command"].startswith(f"container role {role} ")
        assert "${ARGS:-}" in services[role]["command"]


def test_the_container_of_the_dashboard_reads_the_runs_as_their_owner(monkeypatch) -> None:
    path = Path(__file__).parents[3] / "docker-compose.yml"
    service = yaml.safe_load(path.read_text())["services"]["dashboard"]
    called = []
    monkeypatch.setattr(container, "become_owner", lambda work: called.append(work))
    monkeypatch.setattr("services.commands.role.dashboard", lambda *a, **k: called.append((a, k)))
    done = CliRunner().invoke(
        app, service["command"].replace("${DASHBOARD_ARGS:-}", "--allow-actions").split()
    )
    assert done.exit_code == 0, done.output
    assert called == [
        Path.cwd(),
        ((Path("runs"),), {"host": "0.0.0.0", "port": 8765, "allow_actions": True}),
    ]
    assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert service["ports"] == ["127.0.0.1:8765:8765"]
    assert "http://127.0.0.1:8765/login" in service["healthcheck"]["test"][-1]
    assert service["profiles"]  # else `up` would not end with the run
