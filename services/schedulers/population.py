"""Kubernetes objects of a population: `aclearn evolve --on ray` on a cluster of pods.

A Job selects, keeps the population's folder and trains a member; an indexed Job is the nodes of the
others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.runs import POPULATION_FILE
from services.container.command import MOST_RESTARTS, RUNS, WORK
from services.population.ray_engine import check_members, need_of_member
from services.schedulers.checks import gpus
from services.schedulers.pods import (
    CONFIG_FOLDER,
    CONFIG_PATH,
    Object,
    labels,
    metadata,
    pod_security,
    resources,
    security,
    writable_folders,
)
from services.schedulers.run import common_objects

#: Role labels, and the last parts of names, of the pod that selects and of those that train.
SELECTION, MEMBERS = "selection", "members"
#: Key of the token in the Secret.
RAY_TOKEN: Final = "ray-token"
_RAY_PORT = 6379
_MEMORY_MIB = 2048


def population_objects(config: Config, image: str, storage: str) -> Mapping[str, Object]:
    """The objects of a population by the names of their files.

    Raises:
        ConfigError: pods cannot run it.
    """
    if config.run.deterministic:
        raise ConfigError("run.deterministic: one process trains it; set it to false for a cluster")
    for key, device in (
        ("trainer.device", config.trainer.device),
        ("resident.device", config.resident.device),
    ):
        gpus(device, key)
    check_members(config)
    # a pod has room for what is counted here: not the cores of this machine, nor those of its own
    threads = config.resident.threads or 1
    counted = config.resident.model_copy(update={"threads": threads})
    need = need_of_member(config.model_copy(update={"resident": counted}), nodes=())
    taken = {
        "num_cpus": {**config.ray.num_cpus, "member": need.num_cpus},
        "num_gpus": {**config.ray.num_gpus, "member": need.num_gpus},
    }
    config = config.model_copy(update={"ray": config.ray.model_copy(update=taken)})
    if need.labels:
        raise ConfigError(
            "ray.labels: the manifests start all nodes of the population alike, without labels; "
            "take member out of it"
        )
    cpus, devices = math.ceil(need.num_cpus), math.ceil(need.num_gpus)
    name = str(config.run.name)
    head = f"{name}-{SELECTION}"
    here = f"--node-ip-address=$POD_IP --num-cpus={cpus} --num-gpus={devices}"
    start = f"ray start --head --port={_RAY_PORT} {here}"
    evolve = f"aclearn evolve {CONFIG_PATH} --on ray"
    select = (
        f"{start} && if [ -e runs/{name}/{POPULATION_FILE} ]; then resume=--resume; fi && "
        f"RAY_ADDRESS=$POD_IP:{_RAY_PORT} exec {evolve} ${{resume:-}}"
    )
    train = f"exec ray start --address={head}:{_RAY_PORT} {here} --block"
    selection = _pod(config, image, SELECTION, select, (cpus, devices))
    selection["spec"]["restartPolicy"] = "OnFailure"
    members = _pod(config, image, MEMBERS, train, (cpus, devices))
    members["spec"]["restartPolicy"] = "OnFailure"
    count = int(config.population.members or 0) - 1  # the pod that selects has room for one
    return {
        **common_objects(config, storage),
        "service": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(config, SELECTION),
            "spec": {
                "clusterIP": "None",  # Ray uses many ports
                "selector": labels(name, SELECTION),
                "publishNotReadyAddresses": True,
            },
        },
        SELECTION: {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(config, SELECTION, SELECTION),
            "spec": {"backoffLimit": MOST_RESTARTS, "template": selection},
        },
        MEMBERS: {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(config, MEMBERS, MEMBERS),
            "spec": {
                "completionMode": "Indexed",
                "completions": count,
                "parallelism": count,
                # of all pods together: those that are there before the head try again
                "backoffLimit": MOST_RESTARTS * count,
                "template": members,
            },
        },
        "network-population": {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(config, "population"),
            "spec": {
                "podSelector": {"matchLabels": labels(name)},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": labels(name)}}]}],
            },
        },
    }


def _pod(config: Config, image: str, role: str, script: str, takes: tuple[int, int]) -> Object:
    name, (cpus, devices) = str(config.run.name), takes
    volumes, mounts = writable_folders()
    volumes.append({"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
    mounts.append({"name": "memory", "mountPath": "/dev/shm"})
    if role == SELECTION:
        volumes += [
            {"name": "config", "configMap": {"name": f"{name}-config"}},
            {"name": "runs", "persistentVolumeClaim": {"claimName": f"{name}-runs"}},
        ]
        mounts += [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "runs", "mountPath": RUNS},
        ]
    token = {"secretKeyRef": {"name": f"{name}-keys", "key": RAY_TOKEN}}
    container = {
        "name": role,
        "image": image,
        "command": ["sh", "-c", script],
        "workingDir": WORK,
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "RAY_AUTH_MODE", "value": "token"},
            {"name": "RAY_AUTH_TOKEN", "valueFrom": token},
            {"name": "HOME", "value": "/tmp"},
        ],
        "volumeMounts": mounts,
        "resources": resources(str(cpus), _MEMORY_MIB, devices),
        "securityContext": security(),
    }
    return {
        "metadata": {"labels": labels(name, role)},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 60,  # members' checkpoints come back
            "securityContext": pod_security(),
            "containers": [container],
            "volumes": volumes,
        },
    }
