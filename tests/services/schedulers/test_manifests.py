"""Manifests of Kubernetes: valid, and what docker-compose.yml runs."""

from __future__ import annotations

import base64
import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from aclearn.config import config_from_yaml, load_config
from aclearn.errors import AclearnError
from services.commands.manifests import manifests
from services.container.command import MOST_RESTARTS
from services.container.monitor_watch import MONITOR_HOST
from services.roles import ROLES
from services.wiring import ENDPOINTS, QUESTIONS
from tests.support.keys import make_keys

_REPOSITORY = Path(__file__).parents[3]
_CONFIG = str(_REPOSITORY / "configs" / "cluster.yaml")

Objects = dict[str, Any]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Objects]:
    """The objects of a configuration, validated, by the names of their files."""

    def make(*overrides: str, config: str = _CONFIG, **options: Any) -> Objects:
        given = {"image": "aclearn", "storage": "1Gi", "most_actors": None, "keys": None}
        manifests(config, tmp_path / "out", list(overrides), **{**given, **options})
        objects = {
            path.stem: yaml.safe_load(path.read_text())
            for path in sorted((tmp_path / "out").iterdir())
        }
        for each in objects.values():
            kubernetes_validate.validate(each, "1.37", strict=True)
        return objects

    return make


def _pods(objects: Objects) -> dict[str, Any]:
    """Specifications of pods by the name of their file."""
    return {
        name: each["spec"]["template"]["spec"]
        for name, each in objects.items()
        if each["kind"] in ("Job", "Deployment")
    }


def _containers(objects: Objects) -> dict[str, Any]:
    return {
        each["name"]: {**each, "pod": pod}
        for pod in _pods(objects).values()
        for each in pod["containers"]
    }


def _composed(text: str, **environment: str) -> str:
    """Text of docker-compose.yml with `${NAME:-default}` replaced."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: environment.get(m[1], m[2]), text)


def test_pods_run_what_docker_compose_runs(made) -> None:
    services = yaml.safe_load((_REPOSITORY / "docker-compose.yml").read_text())["services"]
    objects = made("run.name=c")
    containers = _containers(objects)
    assert set(containers) == set(ROLES)
    for role, container in containers.items():
        service = services[role]
        # in the pod of the monitor a role finds it as in docker-compose.yml
        away = {} if role in ("monitor", "trainer") else {"MONITOR": "tcp://c-monitor:5555"}
        command = _composed(service["command"], CONFIG="/etc/aclearn/run.yaml", **away)
        assert container["args"] == command.split()
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        targets = {_composed(volume).split(":")[1] for volume in service["volumes"]}
        # the image brings /work, and what does not write into the run folder does not see it
        runs = {"/work/runs"} if ROLES[role].needs_folder else set()
        assert mounts >= (targets - {"/work", "/work/runs"}) | runs
        assert ("/work/runs" in mounts) == bool(runs)
        cpu = container["resources"]["requests"]["cpu"]
        if "cpu_shares" in service:  # of 1024, where a pod's CPU has 1000m
            shares = int(cpu.removesuffix("m")) * 1.024
            assert shares == pytest.approx(service["cpu_shares"], abs=1)
        else:
            assert cpu == "1"
    assert services["actor"]["scale"] == objects["actor"]["spec"]["replicas"]
    assert services["actor"]["restart"] == f"on-failure:{MOST_RESTARTS}"
    assert objects["learner"]["spec"]["backoffLimit"] == MOST_RESTARTS
    [alias] = objects["learner"]["spec"]["template"]["spec"]["hostAliases"]
    assert alias == {"ip": "127.0.0.1", "hostnames": [MONITOR_HOST]}
    there = config_from_yaml(objects["config"]["data"]["run.yaml"])
    paths = {"dir": "/work/runs", "pythonpath": ("/work",)}  # those of a pod
    assert there == load_config(_CONFIG, ["run.name=c"]).with_run(**paths)


def test_every_pod_has_few_rights_probes_and_time_to_save(made) -> None:
    for objects in (made("supervisor.stop_timeout_s=100"), _population(made)):
        for pod in _pods(objects).values():
            assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
            assert not pod["automountServiceAccountToken"]
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                context = container["securityContext"]
                assert context["readOnlyRootFilesystem"]
                assert not context["allowPrivilegeEscalation"]
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert {"cpu", "memory"} == set(container["resources"]["requests"])
                volumes = {volume["name"]: volume for volume in pod["volumes"]}
                assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]
    for pod in _pods(made("supervisor.stop_timeout_s=100")).values():
        assert pod["terminationGracePeriodSeconds"] > 100 + 10
        for container in pod["containers"]:
            ready = container["readinessProbe"]["exec"]["command"]
            assert ready == ["aclearn", "health"]
            alive = container["livenessProbe"]["exec"]["command"]
            assert alive == container["startupProbe"]["exec"]["command"] == [*ready, "--alive"]


def _population(made: Callable[..., Objects], *overrides: str) -> Objects:
    return made(*overrides, config="population/cartpole")


def test_who_may_talk_to_whom_is_what_the_wiring_says(made) -> None:
    containers_of = {"monitor": "learner", "trainer": "learner"}
    for overrides in ([], ["actors.inference=local"], ["compressor.chain=[]"]):
        config = load_config(_CONFIG, overrides)
        objects = made(*overrides)
        ports = {
            port["name"]: (containers_of.get(name, name), port["containerPort"])
            for name, container in _containers(objects).items()
            for port in container["ports"]
        }
        asked = [(q.role, q.endpoint) for q in QUESTIONS if q.asked(config)]
        asked += [(role, "monitor") for role in ROLES]
        expected = set()
        for role, endpoint in asked:
            if ROLES[role].processes(config) == 0:
                continue
            assert ENDPOINTS[endpoint].role in _containers(objects)
            server, port = ports[endpoint]
            if containers_of.get(role, role) != server:
                expected.add((containers_of.get(role, role), server, port))
        allowed: dict[str, set[Any]] = {"ingress": set(), "egress": set()}
        label = "app.kubernetes.io/component"
        for each in objects.values():
            if each["kind"] != "NetworkPolicy":
                continue
            spec = each["spec"]
            assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
            mine = spec["podSelector"]["matchLabels"][label]
            for way, key in (("ingress", "from"), ("egress", "to")):
                for rule in spec[way]:
                    if key not in rule:
                        assert [port["port"] for port in rule["ports"]] == [53, 53]
                        continue
                    [peer] = rule[key]
                    other = peer["podSelector"]["matchLabels"][label]
                    pair = (other, mine) if way == "ingress" else (mine, other)
                    allowed[way] |= {(*pair, port["port"]) for port in rule["ports"]}
        assert allowed["ingress"] == allowed["egress"] == expected
        selects = objects["service"]["spec"]["selector"]
        assert selects == objects["learner"]["spec"]["template"]["metadata"]["labels"]


def test_each_pod_has_its_own_key_alone_and_the_secret_is_written_only_when_asked(
    made, tmp_path
) -> None:
    keys = make_keys(tmp_path / "keys")
    assert all(each["kind"] != "Secret" for each in made().values())
    secret = made(keys=keys)["keys"]
    data = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    assert data.keys() == {"allowed.json", *(f"{role}.key" for role in ROLES)}
    assert all(text == (keys / name).read_bytes() for name, text in data.items())
    assert (tmp_path / "out" / "keys.yaml").stat().st_mode & 0o777 == 0o600
    for role, container in _containers(made()).items():
        [mount] = [each for each in container["volumeMounts"] if each["mountPath"] == "/keys"]
        [volume] = [each for each in container["pod"]["volumes"] if each["name"] == mount["name"]]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        assert mount["readOnly"] and volume["secret"]["defaultMode"] == 0o440
        files = {item["path"]: item["key"] for item in volume["secret"]["items"]}
        own = {f"{role}.key"} | ({"allowed.json"} if role == "monitor" else set())
        assert files == {name: name for name in own}
    assert not (tmp_path / "out" / "keys.yaml").exists()  # the folder is replaced


def test_an_autoscaler_owns_the_number_of_actors(made) -> None:
    objects = made(most_actors=8)
    scaler = objects["actor-autoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == objects["actor"]["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 8)
    assert "replicas" not in objects["actor"]["spec"]
    with pytest.raises(AclearnError, match="--most-actors: no actor is needed"):
        made(config="resident/cartpole", most_actors=8)


def test_unused_roles_have_no_pod_and_a_gpu_is_asked_for(made) -> None:
    objects = made("trainer.device=cuda", "metrics.prometheus_port=9464", config="cartpole")
    assert set(_containers(objects)) == {"monitor", "trainer", "actor"}
    limits = {name: c["resources"]["limits"] for name, c in _containers(objects).items()}
    assert limits["trainer"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in limits["monitor"] | limits["actor"]
    assert {port["port"] for port in objects["service"]["spec"]["ports"]} == {5555, 9464}
    assert {"ports": [{"protocol": "TCP", "port": 9464}]} in objects["network-learner"]["spec"][
        "ingress"
    ]


def test_a_population_is_a_job_that_selects_and_an_indexed_job_of_nodes(made) -> None:
    objects = _population(made)
    config = config_from_yaml(objects["config"]["data"]["run.yaml"])
    members = objects["members"]["spec"]
    assert members["completionMode"] == "Indexed"
    # the pod that selects has room for a member too
    assert members["completions"] == members["parallelism"] == config.population.members - 1
    [head] = objects["selection"]["spec"]["template"]["spec"]["containers"]
    [node] = members["template"]["spec"]["containers"]
    assert "aclearn evolve /etc/aclearn/run.yaml --on ray" in head["command"][2]
    service = objects["service"]["metadata"]["name"]
    assert f"ray start --address={service}:6379 " in node["command"][2]
    labels = objects["selection"]["spec"]["template"]["metadata"]["labels"]
    assert objects["service"]["spec"]["selector"] == labels
    claims = [
        any("persistentVolumeClaim" in v for v in pod["volumes"])
        for pod in (objects["selection"]["spec"]["template"]["spec"], members["template"]["spec"])
    ]
    assert claims == [True, False]


@pytest.mark.parametrize(
    ("device", "threads", "given", "cpus", "devices"),
    [
        ("auto", None, {}, 1, 0),
        ("cuda", None, {}, 1, 1),
        ("auto", 3, {}, 3, 0),
        ("auto", None, {"member": 5.0}, 5, 0),
    ],
)
def test_a_pod_has_room_for_what_its_member_takes_there(
    device: str, threads: int | None, given: dict, cpus: int, devices: int, made, monkeypatch
) -> None:
    monkeypatch.setattr("services.launcher.seed_runs.usable_cores", lambda: 64)
    values = {"trainer.device": "auto", "resident.device": device, "resident.threads": threads}
    overrides = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    objects = _population(made, *overrides, f"ray.num_cpus={json.dumps(given)}")
    config = config_from_yaml(objects["config"]["data"]["run.yaml"])
    assert (config.ray.num_cpus, config.ray.num_gpus) == ({"member": cpus}, {"member": devices})
    assert config.resident.threads == threads
    for name in ("selection", "members"):
        [pod] = objects[name]["spec"]["template"]["spec"]["containers"]
        assert f"--num-cpus={cpus} --num-gpus={devices} " in pod["command"][2]
        assert pod["resources"]["requests"]["cpu"] == str(cpus)
    # one that was killed before it was a population is begun, not resumed
    [head] = objects["selection"]["spec"]["template"]["spec"]["containers"]
    assert f"[ -e runs/{config.run.name}/population.json ]" in head["command"][2]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("run.name=CartPole", "run.name: Kubernetes refuses 'CartPole'.* run.name=cartpole"),
        (f"run.name={'a' * 70}", f"run.name: Kubernetes refuses 'a+'.* run.name={'a' * 45}$"),
        ("run.name=a_b", "run.name: .* run.name=a-b"),
        ("trainer.device=cuda:1", "trainer.device: cuda:1 cannot be expressed.* set it to cuda"),
        (
            "predictor.device=cuda:3 ; actors.inference=predictor ; predictor.runtime=torch",
            "predictor.device: cuda:3 cannot be expressed",
        ),
        ("trainer.processes=2", "trainer.processes: 2 trainers .* set it to 1"),
        ("run.deterministic=true", "run.deterministic: "),
        ("run.init_from=runs/other", "run.init_from: pods do not have .*runs/other"),
        ("population.members=4 ; ray.labels={member: {pool: a}}", "ray.labels: "),
        ("population.members=4 ; monitor.port=5555", "one monitor.port, 5555; set it to null"),
    ],
)
def test_what_pods_cannot_express_is_refused_by_name(overrides: str, said: str, made) -> None:
    with pytest.raises(AclearnError, match=said):
        made(*overrides.split(" ; "), config="cartpole")


def test_a_folder_of_others_and_bad_options_are_refused(made, tmp_path) -> None:
    made()
    (tmp_path / "out" / "mine.yaml").write_text("kind: Secret\n")
    with pytest.raises(AclearnError, match=r"--out: .*mine.yaml was not made by"):
        made()
    assert (tmp_path / "out" / "learner.yaml").exists()
    (tmp_path / "out" / "mine.yaml").unlink()
    with pytest.raises(AclearnError, match="--storage: expected a size such as 10Gi"):
        made(storage="much")
    with pytest.raises(AclearnError, match="cannot read keys from"):
        made(keys=tmp_path / "none")


def test_manifests_that_cannot_be_written_replace_none(made, tmp_path, monkeypatch) -> None:
    made()
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    dump, left = yaml.safe_dump, [2]

    def full(*given, **more) -> str:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return dump(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr("services.schedulers.folder.yaml.safe_dump", full)
        with pytest.raises(AclearnError, match=r"cannot be written \(No space left on device\)"):
            made("run.seed=7")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []
    made("run.seed=7")
