"""A monitor's state with its clock, and roles that send it messages."""

from __future__ import annotations

from collections.abc import Mapping

from aclearn.config import Config, RunConfig
from aclearn.control import MonitorPlugin, StopCondition
from aclearn.metrics import MetricsAggregator
from aclearn.wire import AllowedKey, DirectiveMessage, Envelope, Hello
from services.monitor.core import MonitorState
from services.monitor.plugins import Plugins
from services.monitor.registry import OutgoingMessage, Registry


class Monitor:
    """The monitor's state with its clock, and roles that send it messages."""

    #: Of a run with a ladder of three rungs, whose actors play two policies.
    config = Config.model_validate(
        {
            "env": {"id": "CartPole-v1"},
            "actors": {"inference": "local"},
            "compressor": {"ladder": [["int8", "onnx"], ["onnx"], []]},
        }
    )

    def __init__(
        self,
        tools,
        run: RunConfig | None = None,
        plugins: Mapping[str, MonitorPlugin] | None = None,
        **options,
    ) -> None:
        self.tools, self.now = tools, 0.0
        self.plugins = Plugins(plugins or {}, self.config)
        self.registry, self.view = Registry(silent_after_s=20.0), MetricsAggregator(0.0)
        self.state = MonitorState(
            self.registry,
            self.view,
            StopCondition(run or RunConfig()),
            self.plugins,
            **options,
        )
        if plugins is None:  # else the test makes the first look
            self.state.observe_time(self.now)

    def take(
        self, incarnation: str, message, key: AllowedKey | None = None
    ) -> list[OutgoingMessage]:
        envelope = Envelope("run-1", incarnation, 0, message, key)
        return self.state.take(incarnation.encode(), envelope, self.now)

    def hello(
        self,
        name: str,
        incarnation: str,
        pid: int = 1,
        digests: Mapping[str, str] | None = None,
        forced: bool = False,
        **endpoints: str,
    ) -> list[OutgoingMessage]:
        role, number = name.split("-")
        hello = Hello(
            role, int(number), "box", pid, endpoints, digests=dict(digests or {}), forced=forced
        )
        return self.take(incarnation, hello)

    def heartbeat(self, incarnation: str, **changes) -> list[OutgoingMessage]:
        return self.take(incarnation, self.tools.make_heartbeat(**changes))

    def tick(self, seconds: float = 0.0) -> list[OutgoingMessage]:
        self.now += seconds
        return self.state.observe_time(self.now)

    def look(self, seconds: float) -> list[OutgoingMessage]:
        """Look every second, as a monitor that runs does; the messages of all looks."""
        end, messages = self.now + seconds, []
        while self.now < end:
            messages += self.tick(min(1.0, end - self.now))
        return messages

    def told_to_stop(self, seconds: float = 0.0) -> list[str]:
        return sorted(
            message.routing_id.decode()
            for message in self.tick(seconds)
            if isinstance(message.message, DirectiveMessage) and message.message.kind == "StopRole"
        )
