"""Kubernetes objects of one run."""

from __future__ import annotations

from collections.abc import Mapping

from aclearn.config import Config
from aclearn.errors import ConfigError
from services.container.command import MOST_RESTARTS, PORTS, RUNS, WORK
from services.container.monitor_watch import MONITOR_HOST
from services.roles import ACTOR, MONITOR, ROLES, TRAINER
from services.schedulers.checks import check_run
from services.schedulers.network import LEARNER, network_policies
from services.schedulers.pods import CONFIG_FILE, Object, labels, metadata, pod

#: CPU of a busy actor: with less on average there are enough.
_BUSY_CPU = "800m"


def run_objects(
    config: Config, image: str, storage: str, most_actors: int | None
) -> Mapping[str, Object]:
    """The objects of a run by the names of their files.

    Args:
        config: of a run with a name.
        storage: size of the claim of the run folder.
        most_actors: pods of actors that an autoscaler may start; None for no autoscaler.

    Raises:
        ConfigError: pods cannot run it as one run.
    """
    check_run(config)
    if most_actors is not None and (reason := ACTOR.unused(config)) is not None:
        raise ConfigError(f"--most-actors: {reason}; leave it out")
    objects = common_objects(config, storage)
    objects["service"] = _service(config)
    learner = pod([MONITOR, TRAINER], config, image, LEARNER)
    # the trainer finds the monitor of its pod under the name that it has in docker-compose.yml
    learner["spec"]["hostAliases"] = [{"ip": "127.0.0.1", "hostnames": [MONITOR_HOST]}]
    learner["spec"]["restartPolicy"] = "OnFailure"
    objects[LEARNER] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(config, LEARNER, LEARNER),
        "spec": {"backoffLimit": MOST_RESTARTS, "template": learner},
    }
    for name, spec in ROLES.items():
        if spec in (MONITOR, TRAINER) or not spec.processes(config):
            continue
        objects[name] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(config, name, name),
            "spec": {
                "selector": {"matchLabels": labels(str(config.run.name), name)},
                "template": pod([spec], config, image, name),
            },
        }
        if spec is ACTOR and most_actors is not None:  # the autoscaler owns their number then
            objects["actor-autoscaler"] = _autoscaler(config, most_actors)
        else:
            objects[name]["spec"]["replicas"] = spec.processes(config)
    return {**objects, **network_policies(config)}


def common_objects(config: Config, storage: str) -> dict[str, Object]:
    """The claim of the run folder and the configuration."""
    return {
        "claim": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(config, "runs"),
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": storage}},
            },
        },
        "config": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(config, "config"),
            # the paths of this machine are not those of a pod
            "data": {CONFIG_FILE: config.with_run(dir=RUNS, pythonpath=(WORK,)).to_yaml()},
        },
    }


def _service(config: Config) -> Object:
    ports = [{"name": MONITOR.name, "port": PORTS["monitor"]}]
    if config.metrics.prometheus_port is not None:
        ports.append({"name": "metrics", "port": config.metrics.prometheus_port})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(config, MONITOR.name),
        "spec": {
            "selector": labels(str(config.run.name), LEARNER),
            "ports": ports,
            # roles say hello before monitor and trainer are ready
            "publishNotReadyAddresses": True,
        },
    }


def _autoscaler(config: Config, most_actors: int) -> Object:
    name = metadata(config, ACTOR.name)["name"]
    cpu = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": _BUSY_CPU}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(config, ACTOR.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": min(ACTOR.processes(config), most_actors),
            "maxReplicas": most_actors,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }
