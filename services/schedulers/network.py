"""NetworkPolicies: who may talk to whom, as services/wiring.py says it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from aclearn.config import Config
from services.container.command import PORTS
from services.roles import MONITOR, ROLES, TRAINER
from services.schedulers.pods import Object, labels, metadata
from services.wiring import QUESTIONS, endpoints_of

#: Role label of the pod of monitor and trainer.
LEARNER = "learner"
_DNS = {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]}


def pod_of(role: str) -> str:
    """Role label of the pod in which a role runs."""
    return LEARNER if role in (MONITOR.name, TRAINER.name) else role


def connections(config: Config) -> dict[tuple[str, str], list[int]]:
    """Ports by the pod that connects and the pod that listens; within a pod all may."""
    ports: dict[tuple[str, str], set[int]] = defaultdict(set)
    used = [name for name, spec in ROLES.items() if spec.processes(config)]
    asked = {(role, name) for role in used for name in endpoints_of(MONITOR.name)}
    asked |= {(q.role, q.endpoint) for q in QUESTIONS if q.role in used and q.asked(config)}
    servers = {name: role for role in used for name in endpoints_of(role)}
    for role, endpoint in asked:
        pair = (pod_of(role), pod_of(servers[endpoint]))
        if pair[0] != pair[1]:
            ports[pair].add(PORTS[endpoint])
    return {pair: sorted(found) for pair, found in ports.items()}


def network_policies(config: Config) -> dict[str, Object]:
    """One policy a kind of pod; what is not named is refused, but for DNS."""
    pairs = connections(config)
    policies = {}
    for pod in dict.fromkeys(pod_of(n) for n, s in ROLES.items() if s.processes(config)):
        ingress: list[Object] = [
            {"from": [_peer(config, asks)], "ports": _ports(ports)}
            for (asks, serves), ports in sorted(pairs.items())
            if serves == pod
        ]
        if pod == LEARNER and config.metrics.prometheus_port is not None:
            ingress.append({"ports": _ports([config.metrics.prometheus_port])})
        egress: list[Object] = [_DNS]
        egress += [
            {"to": [_peer(config, serves)], "ports": _ports(ports)}
            for (asks, serves), ports in sorted(pairs.items())
            if asks == pod
        ]
        policies[f"network-{pod}"] = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(config, pod),
            "spec": {
                "podSelector": {"matchLabels": labels(str(config.run.name), pod)},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": ingress,
                "egress": egress,
            },
        }
    return policies


def _peer(config: Config, role: str) -> Object:
    return {"podSelector": {"matchLabels": labels(str(config.run.name), role)}}


def _ports(ports: list[int]) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
