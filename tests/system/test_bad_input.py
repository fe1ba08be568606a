"""What a user can get wrong before the first step: a message that says how to mend it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from system_harness import CARTPOLE, System, check_lines

_WRONG = {
    "unknown key": (
        {"trainer": {"unrols_per_batch": 3}},
        ["unrols_per_batch", "unrolls_per_batch"],
    ),
    "unknown group": ({"trainr": {}}, ["trainr", "trainer"]),
    "ill-typed": ({"actors": {"processes": "two"}}, ["actors.processes", "two"]),
    "out of range": ({"loss": {"discount": 1.5}}, ["loss.discount", "1.5"]),
}


@pytest.mark.parametrize("case", _WRONG)
def test_a_wrong_key_is_named_and_nothing_is_made(system: System, case: str) -> None:
    groups, words = _WRONG[case]
    config = system.config(CARTPOLE, **groups)
    run = system.train(config)
    assert run.wait() == 64
    for word in (str(config), *words):
        assert word in run.output, run.output
    assert "Traceback" not in run.output
    assert not run.folder.exists()


def test_a_config_file_that_is_missing_is_named(system: System, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.yaml"
    command = system.command("train", missing)
    assert command.wait() == 64
    assert str(missing) in command.output and "Traceback" not in command.output


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CartPol-v1", ["CartPol-v1", "CartPole-v1"]),
        ("no_such_module:make", ["no_such_module", "PYTHONPATH"]),
        ("Pendulum-v1", ["Pendulum-v1", "Discrete"]),
    ],
)
def test_an_environment_that_cannot_be_made_ends_the_run_with_the_reason(
    system: System, env_id: str, words: list[str]
) -> None:
    run = system.train(system.config(CARTPOLE, env={"id": env_id}))
    assert run.wait(within_s=40.0) in (1, 64), run.diagnosis()
    check_lines(run.lines())
    for word in words:
        assert word in run.output, run.output


def test_a_run_that_failed_at_its_start_makes_way_for_the_one_that_is_mended(
    system: System,
) -> None:
    failed = system.train(system.config(CARTPOLE, env={"id": "Pendulum-v1"}))
    assert failed.wait(within_s=40.0) in (1, 64), failed.diagnosis()
    run = system.train(system.config(CARTPOLE, run={"max_updates": 3}))
    assert run.wait() == 0, run.diagnosis()
    assert run.check_books()["reason"] == "max_updates"
    aside = run.folder.with_name(f"{run.folder.name}.1")
    assert f"{run.folder} had learned nothing; its files are in {aside} now" in run.output
    assert "Pendulum-v1" in (aside / "config.yaml").read_text()


def test_a_folder_that_has_the_name_of_a_package_of_ours_is_in_nobodys_way(system: System) -> None:
    system.cwd = system.folder / "project"
    (system.cwd / "services").mkdir(parents=True)
    (system.cwd / "services" / "__init__.py").write_text("raise RuntimeError('not this one')")
    (system.cwd / "own.py").write_text(
        "import gymnasium\n\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    system.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    config = system.config(CARTPOLE, env={"id": "own:make"}, run={"max_updates": 3})
    run = system.train(config)
    assert run.wait() == 0, run.diagnosis()
    assert run.check_books()["reason"] == "max_updates"


def test_a_monitor_port_in_use_is_told(system: System) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        run = system.train(system.config(CARTPOLE, monitor={"port": port}))
        assert run.wait(within_s=40.0) in (1, 64), run.diagnosis()
    assert f"127.0.0.1:{port}" in run.output and "in use" in run.output, run.output
