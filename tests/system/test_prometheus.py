"""Prometheus reads a real run, and the Grafana dashboard's queries ask for what it reads."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.system import CARTPOLE, System, free_port

_REPOSITORY = Path(__file__).parents[2]
_DEPLOYED = _REPOSITORY / "deploy/metrics"


def _scrape(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10.0) as answer:
        text = answer.read().decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def _asked_for() -> dict[str, set[str]]:
    """Metric → labels, of the dashboard's queries."""
    dashboard = json.loads((_DEPLOYED / "dashboard.json").read_text())
    asked: dict[str, set[str]] = {}
    queries = [
        (target["expr"], re.findall(r"{{(\w+)}}", target["legendFormat"]))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    for variable in dashboard["templating"]["list"][1:]:
        [(metric, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["definition"])
        asked[metric] = {label}
    for query, labels in queries:
        [(metric, matchers)] = re.findall(r"(aclearn_\w+){(.*?)}", query)
        by = [name for names in re.findall(r"by \((.*?)\)", query) for name in names.split(", ")]
        asked.setdefault(metric, set()).update(
            labels, by, re.findall(r"(\w+)(?:=|!=|=~)\"", matchers)
        )
        assert metric.endswith("_total") == ("rate(" in query or "aclearn_env_steps_total" in query)
    return asked


def test_prometheus_reads_every_figure_that_the_dashboard_shows(system: System) -> None:
    # Given a run in which every role takes part
    port = free_port()
    config = system.config(
        CARTPOLE,
        run={"target_return": 1e9},
        metrics={"prometheus_port": port},
        actors={"inference": "predictor", "behaviour_parameters": False},
        compressor={"chain": ["quantize", "onnx"], "processes": 1},
        evaluator={"every_s": 0.5, "episodes": 2},
    )
    run = system.train(config)
    asked = _asked_for()
    # When Prometheus reads, then it finds each metric of the queries, with its labels
    run.wait_until_learning(beyond=400)
    seen: dict[str, Any] = {}

    def missing() -> set[str]:
        seen.update(_scrape(port))
        return {name for name in asked if name not in seen}

    # those that only some runs have: a run that drops nothing has no reason to count
    elsewhere = {"aclearn_behaviour_kl", "aclearn_dropped_steps_total"}
    run.wait_for(lambda: missing() <= elsewhere, "all metrics are there")
    for name, labels in asked.items():
        for given, _ in seen.get(name, []):
            assert labels <= given.keys(), name
            assert given["run"] == "r"
    # and the numbers are those of the newest line
    line = run.last()

    def has_its_steps() -> bool:
        [(_, steps)] = _scrape(port)["aclearn_learned_steps_total"]
        return steps >= line["learned_steps"]

    # the sink gets a line after the file does
    run.wait_for(has_its_steps, "the newest line is there")
    # a second run at this port goes on without
    other = system.train(config, "run.name=other", "run.max_updates=5")
    assert other.wait() == 0, other.diagnosis()
    assert f"metrics.prometheus_port: 127.0.0.1:{port}: Address already in use" in other.output
    assert "the run continues without it" in other.output
    run.finish()


def test_the_services_of_the_overlay_find_each_other_and_their_files() -> None:
    overlay = yaml.safe_load((_REPOSITORY / "docker-compose.metrics.yml").read_text())
    services = overlay["services"]
    base = yaml.safe_load((_REPOSITORY / "docker-compose.yml").read_text())["services"]
    port = re.search(r"metrics\.prometheus_port=(\d+) ", services["monitor"]["command"])
    assert port is not None
    # the monitor's own words stay
    with_port = f" metrics.prometheus_port={port[1]}"
    assert services["monitor"]["command"].replace(with_port, "").split() == (
        base["monitor"]["command"].split()
    )
    scraped = yaml.safe_load((_DEPLOYED / "prometheus.yml").read_text())["scrape_configs"]
    assert [each["targets"] for each in scraped[0]["static_configs"]] == [[f"monitor:{port[1]}"]]
    [source] = yaml.safe_load((_DEPLOYED / "datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["isDefault"]
    [provider] = yaml.safe_load((_DEPLOYED / "dashboards.yml").read_text())["providers"]
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert all((_REPOSITORY / path).is_file() for path in mounted if path.startswith("./"))
    inside = mounted["./deploy/metrics/dashboard.json"]
    assert inside == services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert str(Path(inside).parent) == provider["options"]["path"]
