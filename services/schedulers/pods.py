"""Pods of the roles of a run: what docker-compose.yml runs, as Kubernetes says it."""

from __future__ import annotations

import math
from typing import Any, Final

from aclearn.config import Config
from aclearn.wire import LIST_FILE
from aclearn.wire.keys import SUFFIX
from services.container.command import (
    BEHIND_SHARES,
    KERNELS,
    KEYS,
    PORTS,
    RUNS,
    WORK,
    role_arguments,
)
from services.container.container import ANNOUNCE_VARIABLE
from services.container.monitor_watch import MONITOR_HOST
from services.role.health import RUNTIME_DIR_VARIABLE
from services.roles import MONITOR, TRAINER, RoleSpec
from services.schedulers.checks import gpus

#: The user of the image, who owns what the pods write.
USER: Final = 1000
#: Label of a pod with its role.
ROLE_LABEL: Final = "app.kubernetes.io/component"
#: Label of every object with its run.
RUN_LABEL: Final = "app.kubernetes.io/instance"
#: Folder and file of the configuration in a pod.
CONFIG_FOLDER, CONFIG_FILE = "/etc/aclearn", "run.yaml"
CONFIG_PATH: Final = f"{CONFIG_FOLDER}/{CONFIG_FILE}"
#: Folder of the health reports.
_REPORTS = "/run/aclearn"
#: Seconds for the last write to the claim, beside those in which roles end.
_SAVE_S = 20
#: Memory of a pod, in MiB (docs/machines.md); the limit is four times as much.
_MEMORY_MIB = {"monitor": 256, "trainer": 1024, "compressor": 1024}
_MEMORY_OF_OTHERS_MIB = 512

Object = dict[str, Any]


def labels(run: str, role: str | None = None) -> dict[str, str]:
    """Labels of an object of a run; with a role, those that select its pods."""
    mine = {"app.kubernetes.io/name": "aclearn", RUN_LABEL: run}
    return mine if role is None else {**mine, ROLE_LABEL: role}


def metadata(config: Config, suffix: str, role: str | None = None) -> Object:
    """Name and labels of an object."""
    name = f"{config.run.name}-{suffix}"
    return {"name": name, "labels": labels(str(config.run.name), role)}


def writable_folders() -> tuple[list[Object], list[Object]]:
    """Volumes and their mounts for what processes write beside the run folder."""
    folders = {"tmp": "/tmp", "reports": _REPORTS, "kernels": KERNELS}
    volumes: list[Object] = [{"name": name, "emptyDir": {}} for name in folders]
    return volumes, [{"name": name, "mountPath": path} for name, path in folders.items()]


def security() -> Object:
    """Security context of every container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pod_security() -> Object:
    """Security context of every pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources(cpu: str, memory_mib: int, devices: int = 0) -> Object:
    """Requests and limits; no limit of the CPU, which would slow bursts down."""
    limits: Object = {"memory": f"{4 * memory_mib}Mi"}
    if devices:
        limits["nvidia.com/gpu"] = devices
    return {"requests": {"cpu": cpu, "memory": f"{memory_mib}Mi"}, "limits": limits}


def _devices_of(spec: RoleSpec, config: Config) -> int:
    if spec is TRAINER and config.resident.envs is not None:
        return gpus(config.resident.device, "resident.device")
    if spec is TRAINER:
        return gpus(config.trainer.device, "trainer.device")
    if spec.name == "predictor":
        return gpus(config.predictor.device, "predictor.device")
    return 0


def _probes() -> Object:
    def ask(*options: str, every_s: int, failures: int) -> Object:
        return {
            "exec": {"command": ["aclearn", "health", *options]},
            "periodSeconds": every_s,
            "timeoutSeconds": 10,
            "failureThreshold": failures,
        }

    return {
        "startupProbe": ask("--alive", every_s=10, failures=30),  # libraries take long to load
        "livenessProbe": ask("--alive", every_s=30, failures=3),
        "readinessProbe": ask(every_s=30, failures=1),
    }


def container(spec: RoleSpec, config: Config, image: str) -> Object:
    """The container of a role."""
    together = spec in (MONITOR, TRAINER)  # in one pod, as in one docker-compose.yml
    host = MONITOR_HOST if together else f"{config.run.name}-{MONITOR.name}"
    ports = {name: PORTS[name] for name in spec.endpoints if name in PORTS}
    if spec is MONITOR and config.metrics.prometheus_port is not None:
        ports["metrics"] = config.metrics.prometheus_port
    _, mounts = writable_folders()
    mounts = [
        *mounts,
        {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
        {"name": f"key-{spec.name}", "mountPath": KEYS, "readOnly": True},
    ]
    if spec.needs_folder:
        mounts.append({"name": "runs", "mountPath": RUNS})
    # the kernel is told of 1000m as 1024 shares
    cpu = (
        f"{round(BEHIND_SHARES * 1000 / 1024)}m" if spec.nice(config) else str(spec.threads(config))
    )
    memory_mib = _MEMORY_MIB.get(spec.name, _MEMORY_OF_OTHERS_MIB)
    if spec is TRAINER:
        memory_mib += config.trainer.queue_bytes // 2**20
    return {
        "name": spec.name,
        "image": image,
        "args": role_arguments(spec, CONFIG_PATH, f"tcp://{host}:{PORTS['monitor']}"),
        "workingDir": WORK,
        "env": [
            {"name": ANNOUNCE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": RUNTIME_DIR_VARIABLE, "value": _REPORTS + (f"/{spec.name}" * together)},
            {"name": "HOME", "value": "/tmp"},
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "volumeMounts": mounts,
        "resources": resources(cpu, memory_mib, _devices_of(spec, config)),
        "securityContext": security(),
        **_probes(),
    }


def key_files(spec: RoleSpec) -> list[str]:
    """Files of a role's own key: a monitor has the list of keys too."""
    return [f"{spec.name}{SUFFIX}", *([LIST_FILE] if spec is MONITOR else [])]


def _key_volume(spec: RoleSpec, run: str) -> Object:
    items = [{"key": file, "path": file} for file in key_files(spec)]
    # the pod's group reads them too, which our check of keys allows for files of root
    secret = {"secretName": f"{run}-keys", "defaultMode": 0o440, "items": items}
    return {"name": f"key-{spec.name}", "secret": secret}


def pod(specs: list[RoleSpec], config: Config, image: str, role: str) -> Object:
    """Template of a pod with the containers of these roles."""
    name = str(config.run.name)
    volumes, _ = writable_folders()
    volumes += [
        {"name": "config", "configMap": {"name": f"{name}-config"}},
        *(_key_volume(spec, name) for spec in specs),
    ]
    if any(spec.needs_folder for spec in specs):
        claim = {"claimName": f"{name}-runs"}
        volumes.append({"name": "runs", "persistentVolumeClaim": claim})
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(config.supervisor.stop_timeout_s) + _SAVE_S,
        "securityContext": pod_security(),
        "containers": [container(each, config, image) for each in specs],
        "volumes": volumes,
    }
    return {"metadata": {"labels": labels(name, role)}, "spec": spec}
