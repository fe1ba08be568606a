"""A role's client of the monitor on a real socket, and the monitor's end of it."""

from __future__ import annotations

from aclearn.control.directives import SetMix
from aclearn.wire import (
    DirectiveAck,
    Heartbeat,
    Hello,
    Peers,
    PolicyNumbers,
)
from services.role.monitor_client import MonitorClient


class Line:
    """One role, and the monitor's end of its connection."""

    def __init__(self, roles, tools, **keys) -> None:
        self.tools, self.clock = tools, tools.Clock()
        self.monitor = roles("monitor-0").serve_at(roles.monitor, (Hello, Heartbeat, DirectiveAck))
        self.context = roles("actor-0")
        self.client = self.context.connect(roles.monitor)
        self.heartbeats: list[Heartbeat] = []
        self.returns: list[float] = []
        self.policies: dict[str, PolicyNumbers] = {}
        self.shares: list[float] = []
        self.hello = self.context.hello({"unrolls": "ipc:///u"})
        # connected, so that the speed of connecting has no effect below
        tools.wait_until(
            lambda: self.client.transport.wait_for_room(0.1), "the monitor is connected"
        )
        self.membership = MonitorClient(
            self.client,
            hello=self.hello,
            heartbeat=self._heartbeat,
            heartbeat_every_s=2.0,
            on={SetMix: self._set_mix},
            clock=self.clock,
            **keys,
        )

    def _set_mix(self, directive: SetMix) -> None:
        if directive.compressed_share == 0.75:
            raise ValueError("no such\nmix")
        self.shares.append(directive.compressed_share)

    def _heartbeat(self) -> Heartbeat:
        heartbeat = Heartbeat(
            {"number": len(self.heartbeats)},
            episode_returns=self.returns,
            policies=self.policies,
        )
        self.returns, self.policies = [], {}
        self.heartbeats.append(heartbeat)
        return heartbeat

    def next(self):
        """The monitor's next message; the role ticks meanwhile."""
        routing_id, envelope = self.tools.next_message(self.monitor, self.membership.tick)
        assert envelope.incarnation == self.context.incarnation
        assert routing_id == self.context.routing_id
        return envelope.message

    def quiet(self) -> bool:
        return self.tools.nothing_comes(self.monitor, self.membership.tick)

    def say(self, message) -> None:
        assert self.monitor.send(self.context.routing_id, message)

    def introduce(self, revision: int = 1) -> None:
        assert isinstance(self.next(), Hello)
        self.say(Peers(revision, []))
        self.tools.wait_until(self._tick_and_know(revision), "the peers are known")

    def _tick_and_know(self, revision: int):
        def look() -> bool:
            self.client.transport.wait(0.1)
            self.membership.tick()
            return self.membership.revision == revision

        return look
