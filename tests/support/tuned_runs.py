"""A run with a tuner, whose roles follow its directives."""

from __future__ import annotations

import json
from pathlib import Path

from aclearn.config import Config, config_from_yaml
from aclearn.control import Note, SetActors
from aclearn.control.tuner.plugin import TunerPlugin, most_counts
from aclearn.control.tuner.remembered_counts import RememberedCounts
from aclearn.runs import TUNER_FILE, RunFolder
from aclearn.wire import Heartbeat
from services.monitor.directive_channel import DirectiveChannel
from services.monitor.lines import IndicatorCollector
from services.monitor.registry import Member, OutgoingMessage
from tests.support.clock import Clock

_YAML = """
run: {{name: r, dir: {dir}}}
env: {{id: CartPole-v1}}
actors: {{processes: 2, inference: {inference}}}
tuner:
  enabled: {enabled}
  counts: {counts}
  objective: {objective}
  every_s: 2.0
  settle_s: 0.5
  temperature: 0.0
  max_trainers: 3
  max_actors: 4
"""


def tuned_config(
    folder: Path,
    counts: str = "[trainers]",
    inference: str = "local",
    enabled: str = "true",
    objective: str = "learned_steps",
) -> Config:
    return config_from_yaml(
        _YAML.format(
            dir=folder,
            counts=counts,
            inference=inference,
            enabled=enabled,
            objective=objective,
        )
    )


class World:
    """A run whose roles follow directives at once; the rate depends on the counts."""

    def __init__(self, config: Config, rate) -> None:
        self.config, self.rate = config, rate
        self.clock = Clock(0.0)
        self.memory = RememberedCounts(config)
        path = Path(config.run.dir) / "r"
        existed = path.exists()
        self.folder = (
            RunFolder.open(path)
            if existed
            else RunFolder.create(config.run.dir, "r", config.to_yaml())
        )
        self.shown: list[tuple[int, dict]] = []
        self.tuning = None
        if most_counts(config):
            self.tuning = TunerPlugin(
                config,
                self.folder.path,
                {"predictors": "predictor", "trainers": "trainer"},
                show=lambda line, scalars: self.shown.append((line["decision"], scalars)),
            )
        self.collector = IndicatorCollector({"actor": config.actors.processes})
        self.channel = DirectiveChannel()
        self.notes: list[str] = []
        self.actors_wanted: int | None = None
        self.members = [member("trainer-0", "t"), *actors_of(config.actors.processes)]
        self.workers = {"t": 1}
        self.learned = 0.0
        self.messages: list[OutgoingMessage] = []
        self.deaf = False
        self.by_hand: list[Member] = []
        #: Incarnations without heartbeats.
        self.silent: set[str] = set()
        #: Incarnations of restarted actors, by name.
        self._again: dict[str, str] = {}
        #: Seconds that a surplus actor takes to leave.
        self.leaves_within_s = 0.0
        self._leaving_since: float | None = None
        if self.tuning is not None:
            self.look()

    @property
    def time_s(self) -> float:
        """The run's clock, which starts at 100 s."""
        return self.clock.now + 100.0

    def heartbeat(self, member: Member, **fields) -> None:
        self.collector.take(member, Heartbeat(**fields), self.time_s)

    def look(self) -> None:
        for directive in self.tuning.observe(self.collector.look(self.members, {}, self.time_s)):
            if isinstance(directive.payload, Note):
                self.notes.append(directive.payload.text)
            elif isinstance(directive.payload, SetActors):
                assert directive.to == "supervisor"
                self.actors_wanted = directive.payload.count
            else:
                self.channel.issue(directive, by="tuner", rank=0)

    def go_on(self, seconds: float) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 0.25
            actors = sum(m.role == "actor" for m in self.members)
            self.learned += 0.25 * self.rate(self.workers, actors)
            for member in self.members:
                if member.incarnation in self.silent:
                    continue
                workers = self.workers.get(member.incarnation)
                self.heartbeat(
                    member,
                    counters={"learned_steps": int(self.learned), "batches": int(self.learned)},
                    gauges={} if workers is None else {"workers": float(workers)},
                )
            self.look()
            self.channel.meet(tuple(self.members))
            for message in self.channel.messages(self.clock.now):
                self.messages.append(message)
                if not self.deaf:
                    incarnation = message.routing_id.decode()
                    self.channel.acknowledge(incarnation, message.message.id)
                    self.workers[incarnation] = message.message.values["count"]
            wanted = self.actors_wanted
            if wanted is not None and not self.deaf:
                others = [m for m in self.members if m.role != "actor"]
                there = len(self.members) - len(others) - len(self.by_hand)
                if there <= wanted:
                    self._leaving_since = None
                elif self._leaving_since is None:
                    self._leaving_since = self.clock.now
                if self._leaving_since is not None:
                    gone = self.clock.now - self._leaving_since >= self.leaves_within_s
                    wanted = wanted if gone else there
                self.members = others + self._actors(wanted) + self.by_hand

    def told(self) -> list[tuple[str, int]]:
        return [(m.routing_id.decode(), m.message.values["count"]) for m in self.messages]

    def start_again(self, name: str, incarnation: str) -> None:
        """Replace an actor by a successor, which has said hello."""
        self._again[name] = incarnation
        self.members = [member(name, incarnation) if m.name == name else m for m in self.members]

    def _actors(self, count: int) -> list[Member]:
        named = [m.name for m in actors_of(count)]
        return [member(name, self._again.get(name, f"a{i}")) for i, name in enumerate(named)]

    def lines(self) -> list[dict]:
        return [json.loads(x) for x in (self.folder.path / TUNER_FILE).read_text().splitlines()]


def member(name: str, incarnation: str) -> Member:
    role, number = name.split("-")
    return Member(role, int(number), incarnation, incarnation.encode(), {})


def actors_of(count: int) -> list[Member]:
    return [member(f"actor-{i}", f"a{i}") for i in range(count)]


def two_is_best(workers, actors) -> float:
    return {1: 600.0, 2: 1000.0, 3: 800.0}[workers["t"]]
