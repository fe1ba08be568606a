"""Containers that cannot work print what would mend it, and all end."""

from __future__ import annotations

import os
import subprocess

import yaml

from tests.support.compose import ROLES, Cluster, override
from tests.support.waiting import DEADLINE_S

#: Three of six services: starting all takes half as long again.
FEW = ("monitor", "trainer", "actor")


def refused(cluster: Cluster, *arguments: str, **environment: str) -> str:
    """The output of an `up` whose containers all end at once, without restarts."""
    output = cluster.compose("up", *arguments, **environment)
    assert "Traceback" not in output
    codes = cluster.exit_codes()
    assert {code for each in codes.values() for code in each} == {0}, output
    for role in ROLES:
        for container in cluster.containers(role):
            assert cluster.state(container)["RestartCount"] == 0, output
    return output


def test_a_configuration_that_cannot_be_used_ends_every_container(clone) -> None:
    cluster = clone()
    secret = cluster.folder / "configs" / "cartpole.yaml"
    secret.chmod(0o600)
    os.chown(secret, cluster.owner + 1, -1)
    output = refused(cluster, CONFIG="configs/cartpole.yaml")
    said = output.count("configs/cartpole.yaml: cannot be read: Permission denied")
    assert said == 7  # containers
    assert not cluster.run().exists()


def test_keys_are_made_where_they_are_missing_and_refused_where_others_could_read_them(
    clone,
) -> None:
    cluster = clone()
    keys = cluster.folder / "keys"
    output = refused(cluster, *FEW, KEYS="./keys", CONFIG="configs/pongg.yaml")
    assert output.count("configs/pongg.yaml: there is no such configuration file") == 4
    (keys / "actor.key").chmod(0o644)
    output = refused(cluster, *FEW, KEYS="./keys")
    assert "can be read by other users; mend it with `chmod 600 /keys/actor.key`" in output
    assert (keys / "actor.key").stat().st_mode & 0o777 == 0o644


def test_a_run_folder_of_another_environment_or_that_cannot_be_written(clone) -> None:
    cluster = clone()
    folder = cluster.run()
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("env: {id: Acrobot-v1}\n")
    (folder / "metrics.jsonl").write_text('{"learned_steps": 1}\n')
    cluster.give(cluster.folder / "runs")
    output = refused(cluster, *FEW)
    assert output.count("env.id is 'Acrobot-v1' there, 'CartPole-v1' here") == 4
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "metrics.jsonl"]

    override(cluster, **{role: {"volumes": ["./runs:/work/runs:ro"]} for role in ROLES})
    output = refused(cluster, *FEW, ARGS="run.name=other")
    assert output.count("cannot write /work/runs; give it to that user: sudo chown -R") == 4


def test_a_role_that_the_configuration_has_no_use_for_says_so_and_ends(clone) -> None:
    cluster = clone()
    given = "run.seed=2 run.max_updates=4 actors.envs_per_group=2"
    output = refused(cluster, CONFIG="configs/pong.yaml", ARGS=given)
    assert "no predictor is needed: actors choose their actions" in output
    assert "no compressor is needed: actors run the policy itself" in output
    assert cluster.last("updates", "pong-seed2") >= 4
    # an error that only one role finds ends them all
    no = "env.id=No-v1 run.name=no"
    output = refused(cluster, *FEW, CONFIG="configs/cartpole.yaml", ARGS=no)
    assert "No-v1" in output and "role failed: " in output


def test_a_role_ends_with_a_monitor_that_it_has_never_heard(clone) -> None:
    cluster = clone()
    override(cluster, monitor={"entrypoint": ["true"]})
    output = refused(cluster, *FEW)
    assert output.count("the monitor has ended before its first answer") == 3


def test_the_gpu_override_gives_trainer_and_predictor_a_device_and_a_cuda_build(clone) -> None:
    cluster = clone()
    files = ("-f", "docker-compose.yml", "-f", "docker-compose.gpu.yml")
    asked = subprocess.run(
        ["docker-compose", *files, "config"],
        cwd=cluster.folder,
        env=cluster.environment | {"TORCH_INDEX": "https://download.pytorch.org/whl/cu128"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    services = yaml.safe_load(asked.stdout)["services"]
    for role in ("trainer", "predictor"):
        [device] = services[role]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
        assert services[role]["image"] == "aclearn-test:cuda"
        index = services[role]["build"]["args"]["TORCH_INDEX"]
        assert index == "https://download.pytorch.org/whl/cu128"
    assert "deploy" not in services["actor"] and services["actor"]["image"] == "aclearn-test"
