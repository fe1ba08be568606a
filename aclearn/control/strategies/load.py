"""The strategies of a configuration: made, checked, and opened as plug-ins of the monitor."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from aclearn.config import Config
from aclearn.control.decision_log import DecisionLog
from aclearn.control.directives import SetChain, SetMix
from aclearn.control.strategies import STRATEGIES, Strategy
from aclearn.control.strategies.indicators import needs_of
from aclearn.control.strategies.strategy_plugin import Show, StrategyPlugin
from aclearn.errors import ConfigError
from aclearn.extensions import make_extension
from aclearn.metrics.indicators import load_indicators
from aclearn.metrics.names import check_line_name
from aclearn.runs import STRATEGIES_FILE, read_metrics

_KEY = "monitor.strategies"
_SETS = {SetChain: "the rung of the ladder", SetMix: "the share of unrolls"}


def check_strategies(config: Config, roles: Collection[str]) -> None:
    """Check that the strategies can work in this run.

    Raises:
        ConfigError: one cannot be loaded or made, needs a feature that is off, or contradicts
            another.
    """
    _make(config, roles)


def open_strategies(
    config: Config, run_dir: Path, roles: Collection[str], *, show: Show | None = None
) -> dict[str, StrategyPlugin]:
    """The strategies as plug-ins, which continue from the run's decisions.

    Raises:
        ConfigError: as `check_strategies`.
        RunFolderError: the log of decisions cannot be opened.
    """
    strategies = _make(config, roles)
    if not strategies:
        return {}
    log = DecisionLog(run_dir / STRATEGIES_FILE)
    last = {line.get("strategy"): line for line in read_metrics(run_dir / STRATEGIES_FILE)}
    return {
        name: StrategyPlugin(
            name,
            strategy,
            rungs=len(config.compressor.rungs),
            dwell_s=dwell_s,
            log=log,
            last=last.get(name, {}),
            show=show,
        )
        for name, (strategy, dwell_s) in strategies.items()
    }


def _make(config: Config, roles: Collection[str]) -> dict[str, tuple[Strategy, float]]:
    """Name → strategy and its dwell."""
    made: dict[str, tuple[Strategy, float]] = {}
    faults: list[str] = []
    setters: dict[type, str] = {}
    entries = config.monitor.strategies
    own = _own_figures(config) if entries else ()
    for entry in entries:
        arguments = entry.arguments.model_dump()
        dwell_s = arguments.pop("dwell_s")
        strategy = make_extension(
            entry.name, arguments, key=_KEY, expected=Strategy, ours=STRATEGIES
        )
        faults += _faults(entry.name, strategy, config)
        for figure in strategy.indicators if config.compressor.rungs else ():
            try:
                check_line_name(figure, config, key=entry.name, roles=roles, own=own)
            except ConfigError as error:
                faults.append(str(error))
        if (other := setters.get(strategy.sets)) is not None:
            both = f"{other} and {entry.name} both set {_SETS[strategy.sets]}"
            faults.append(f"{both}; keep one of them")
        setters[strategy.sets] = entry.name
        made[entry.name] = strategy, dwell_s
    if faults:
        raise ConfigError("\n".join(f"{_KEY}: {fault}" for fault in faults))
    return made


def _faults(name: str, strategy: Strategy, config: Config) -> Iterator[str]:
    """Reasons why it cannot work in this run."""
    rungs = len(config.compressor.rungs)
    if rungs < 2:
        yield (
            f"{name} needs a ladder of at least two chains, and there is "
            f"{'one' if rungs else 'none'}; set compressor.chain or compressor.ladder"
        )
    elif strategy.sets is SetMix and not config.mixes_policies:
        yield (f"{name} needs actors that play two policies; set actors.inference to local")
    for figure in strategy.indicators:
        if (setting := needs_of(figure, config)) is not None:
            yield f"{name}: this run does not measure {figure}; set {setting}"
    if rungs >= 2:
        yield from (f"{name}: {fault}" for fault in strategy.faults(rungs))


def _own_figures(config: Config) -> set[str]:
    """Names of the metrics of the user's indicators."""
    own = load_indicators(config.monitor.indicators)
    return {figure for indicator in own for figure in indicator.names}
