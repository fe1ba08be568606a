"""Metrics at a port, for Prometheus to read."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from aclearn.metrics.prometheus import Sample, samples
from aclearn.metrics.sinks.sink import MetricsSink, SinkRun


class PrometheusSink(MetricsSink):
    """Answers HTTP requests for `/metrics` with the figures of the newest line.

    Each has the label `run`, the run's name. There is no password and
    no encryption.

    Raises:
        ModuleNotFoundError: prometheus-client is not installed.
    """

    def __init__(self, host: str, port: int) -> None:
        if importlib.util.find_spec("prometheus_client") is None:
            name = "prometheus_client"
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        self._host, self._port = host, port
        self._run = ""
        self._line: Mapping[str, Any] = {}
        #: Counter and labels → its largest value. A trainer begins again at its checkpoint, and
        #: Prometheus takes any smaller value for a count from 0.
        self._most: dict[tuple[str, ...], float] = {}
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @override
    def open(self, run: SinkRun) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._run = run.name
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self._port, self._host, registry)
        except OSError as error:
            raise OSError(
                f"metrics.prometheus_port: {self._host}:{self._port}: {error.strerror or error}; "
                "another process may have it; set another port"
            ) from error

    @override
    def write(self, line: Mapping[str, Any]) -> None:
        self._line = line

    @override
    def close(self, summary: Mapping[str, Any] | None) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def collect(self) -> Iterator[Any]:
        """The families of the newest line, as prometheus-client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, list[Sample]] = {}
        for sample in samples(self._line):
            families.setdefault(sample.name, []).append(sample)
        for name, found in families.items():
            kind = CounterMetricFamily if found[0].counts else GaugeMetricFamily
            labels = ["run", *found[0].labels]
            family = kind(name, f"{found[0].figure} of metrics.jsonl", labels=labels)
            for sample in found:
                labels, value = [self._run, *sample.labels.values()], sample.value
                if sample.counts:
                    value = max(value, self._most.get((name, *labels), value))
                    self._most[name, *labels] = value
                family.add_metric(labels, value)
            yield family
