"""A role as the only process of its container: its checks before it works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from aclearn.config import Config, load_config
from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.launch import EXIT_GIVE_UP, RESTARTS_VARIABLE, StopFlag
from services.cli import app
from services.container import container
from services.role.health import FAILED, RUNTIME_DIR_VARIABLE, HealthReport
from services.roles import ROLES
from services.start.folder import role_folder

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
    with pytest.raises(ConfigError, match=r'run --rm --no-deps --user "\$\(id -u\)'):
        container.nothing_to_do(ROLES["actor"], load("run.deterministic=true"))


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
    died = HealthReport("actor-1", 7, 100.0, 60.0, "", 0, 396 * 2**20, True)
    monkeypatch.setattr(container, "memory_limit_bytes", lambda: 400 * 2**20)
    assert container.words_of(died) == (
        "its previous process was killed, at most a second after it used 396 of 400 MiB, "
        "the limit of its container"
    )
    monkeypatch.setattr(container, "memory_limit_bytes", lambda: None)
    assert container.words_of(died) == "its previous process was killed"
    failed = HealthReport("actor-1", 7, 100.0, 60.0, FAILED, 0, 396 * 2**20, True)
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
    monkeypatch.setattr(container, "end_run", lambda *_: None)
    monkeypatch.setattr(container, "watch_monitor", lambda *_: None)
    monkeypatch.setenv(RUNTIME_DIR_VARIABLE, str(tmp_path))
    load()
    stop, run_role = StopFlag(), lambda *_, **__: pytest.fail("no role can be run")
    status = container.run_contained(
        ROLES["actor"], path, "tcp://monitor:5555", [override], stop, run_role
    )
    [line] = capsys.readouterr().err.splitlines()
    assert (status, words in line) == (0, True), line


@pytest.fixture
def contained(load, tmp_path, monkeypatch) -> SimpleNamespace:
    """Runs a role in its container; `ended` has the reasons by which it ended the run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(container, "become_owner", lambda work: None)
    monkeypatch.setattr(container, "watch_monitor", lambda *_: None)
    monkeypatch.setenv(RUNTIME_DIR_VARIABLE, str(tmp_path))
    monkeypatch.setenv(RESTARTS_VARIABLE, "0")
    ended: list[str] = []
    monkeypatch.setattr(
        container, "end_run", lambda spec, config, monitor, why, stop: ended.append(why)
    )
    load()

    def run(role: str, run_role: Callable[..., int]) -> int:
        stop, override = StopFlag(), ["evaluator.every_s=60"]
        arguments = (ROLES[role], "cartpole.yaml", "tcp://monitor:5555", override, stop, run_role)
        return container.run_contained(*arguments)

    return SimpleNamespace(run=run, ended=ended)


@pytest.mark.parametrize(("role", "ends"), [("actor", 1), ("evaluator", 0)])
def test_an_optional_role_that_cannot_work_does_not_end_the_run(contained, role, ends) -> None:
    def run_role(*_, **__):
        raise EnvironmentFailure("environment a failed 6 times")

    assert contained.run(role, run_role) == 0
    assert len(contained.ended) == ends


def test_a_role_that_fails_at_its_last_start_ends_the_run(contained, monkeypatch) -> None:
    path = Path(__file__).parents[3] / "docker-compose.yml"
    restart = yaml.safe_load(path.read_text())["services"]["trainer"]["restart"]
    most = int(restart.removeprefix("on-failure:"))

    def run_role(*_, **__):
        raise ZeroDivisionError("in the user's network")

    for restarts in range(most):  # of the process before
        died = HealthReport("trainer-0", 7, 100.0, 60.0, FAILED, restarts, 2**20, True)
        monkeypatch.setattr(container, "_died", lambda role, died=died: died)
        assert not contained.ended
        with pytest.raises(ZeroDivisionError):  # Docker starts it again, but for the last
            contained.run("trainer", run_role)
    assert contained.ended == ["role failed: trainer: in the user's network"]


def test_a_role_that_the_run_refuses_is_not_started_again(contained) -> None:
    assert contained.run("actor", lambda *_, **__: EXIT_GIVE_UP) == 0
    assert contained.run("actor", lambda *_, **__: 3) == 3
    assert not contained.ended


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
    monkeypatch.setattr(
        "services.commands.dashboard.dashboard", lambda *a, **k: called.append((a, k))
    )
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
