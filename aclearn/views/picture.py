"""The parts of the live view: numbers, shares of time and roles. Imports rich."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from aclearn.metrics import INFO, dropped_words
from aclearn.metrics.formatting import amount, evaluated, percent, printable, score
from aclearn.metrics.names import POLICIES
from aclearn.views.flow import Flow, lag_words, rates_of

_WIDE: Final = 100  # cells; narrower views have shorter bars
_BAR_CELLS: Final = 24
_WAIT_COLOURS: Final = ("yellow", "magenta", "cyan", "red", "blue")
_STATE_COLOURS: Final = {"running": "green", "done": "dim", "waiting": "yellow", "failed": "red"}


def figures(line: Mapping[str, Any]) -> Table:
    """The numbers of a metrics line in two columns; each fits half of 76 cells."""
    value, episodes = line.get("return_mean_100"), line.get("episodes_in_mean")
    mean_of = "" if episodes is None else f" (mean of {episodes})"
    rows = [
        ("Return", "-" if value is None else f"{score(value)}{mean_of}"),
        ("Environment", rates_of(line, "actor")[0]),
        ("Episodes", _episodes(line)),
        ("Learned", rates_of(line, "trainer")[0]),
        ("Agent steps", amount(line.get("env_steps"))),
        ("Predictions", _predictions(line)),
        ("Learned steps", amount(line.get("learned_steps"))),
        ("Batches", _batches(line)),
        ("In flight", amount(line.get("in_flight_steps"))),
        ("Updates", f"{amount(line.get('updates'))}, generation {line.get('generation', 0)}"),
        ("Dropped", amount(sum((line.get("dropped_steps") or {}).values()))),
        ("Lag (versions)", lag_words(line)),
        *_evaluation(line),
    ]
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, 1, None, 1):
        table.add_column(ratio=ratio, no_wrap=True)
    cells = [text for name, value in rows for text in (Text(name, style="dim"), Text(value))]
    for index in range(0, len(cells), 4):
        table.add_row(*cells[index : index + 4])
    return table


def policies(line: Mapping[str, Any]) -> Table | None:
    """A row for each of several policies: returns, lengths, losses, entropy, KL; None of one."""
    parts: Mapping[str, Mapping[str, Any]] = line.get(POLICIES) or {}
    if not parts:
        return None
    # narrow: 76 cells hold a row with a name of 12 letters
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("Policy", overflow="ellipsis", no_wrap=True)
    for title in ("Return", "Evaluated", "Length", "Learned", "Entropy", "KL", "π loss", "V loss"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, part in parts.items():
        value = part.get("return_mean_100")
        kl = part.get("behaviour_kl", part.get("behaviour_kl_estimate"))
        figures = (part.get("entropy"), kl, part.get("policy_loss"), part.get("value_loss"))
        table.add_row(
            Text(name, style="bold"),
            "-" if value is None else score(value),
            evaluated(part, "±") or "-",
            amount(part.get("episode_length_mean")),
            amount(part.get("learned_steps")),
            *("-" if each is None else f"{each:.2g}" for each in figures),
        )
    return table


def _evaluation(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The newest mean of an evaluator, and at how many steps; empty without one."""
    count, mean = line.get("evaluator_evaluations"), evaluated(line)
    if count is None:
        return []
    at = f", at {amount(line.get('evaluator_env_steps'))} steps" if mean else ""
    return [("Evaluated", mean or "-"), ("Evaluations", f"{count}{at}")]


def _episodes(line: Mapping[str, Any]) -> str:
    """Their number and mean length."""
    length, words = line.get("episode_length_mean"), amount(line.get("episodes"))
    return words if length is None else f"{words}, {amount(length)} steps long"


def _predictions(line: Mapping[str, Any]) -> str:
    """PPS, and the emulator's frames."""
    frames = line.get("frames_per_s")
    words = f"{amount(line.get('pps'))} /s"
    return words if frames is None else f"{words}, {amount(frames)} fps"


def _batches(line: Mapping[str, Any]) -> str:
    """TPS times the steps of a batch, which is about PPS where all steps are learned (GA3C)."""
    tps, steps = line.get("tps"), line.get("batch_steps")
    if not tps or not steps:
        return f"{amount(tps)} /s"
    return f"{amount(tps)}/s × {amount(steps)} = {amount(tps * steps)}"


def queues(flow: Flow) -> Text | None:
    """The fill of the queues; None if unknown."""
    words = Text("Queues", style="dim")
    for queue, fill in flow.queues.items():
        words.append(f"  {queue.removesuffix(' queue')} ", style="default")
        words.append(_bar([(fill, "red" if fill >= 0.8 else "green")], _BAR_CELLS // 2))
        words.append(f" {percent(fill)}", style="default")
    return words if flow.queues else None


def indicators(line: Mapping[str, Any]) -> list[Text]:
    """Rows of the known indicators: info; distances of policies; the correction; learning."""
    info = [name for name in line if name.startswith(INFO)]
    known: dict[str, Any] = {
        name: percent(value) if name.endswith("_share") and name not in info else value
        for name, value in line.items()
        if isinstance(value, int | float)
    }
    if "behaviour_kl" in known:
        known["behaviour_kl_estimate"] = known["behaviour_kl"]
    rows = {
        "Info": {name: f"{name.removeprefix(INFO)} {{:.4g}}" for name in info},
        "Indicators": {
            "behaviour_kl_estimate": "KL(μ‖π) {:.2g}",
            "compressor_kl_mean": "artifact {:.2g}",
            "compressor_kl_variance": "var {:.2g}",
            "compressor_kl_max": "max {:.2g}",
            "reward_gap": "gap {:.4g}",
        },
        "Correction": {
            "rho_mean": "ρ {:.3g}",
            "effective_sample_share": "effective {}",
            "clipped_rho_share": "clipped ρ {}",
            "clipped_c_share": "c {}",
        },
        "Learning": {
            "entropy": "entropy {:.2g}",
            "explained_variance": "explained variance {:.2g}",
            "return_slope_per_s": "return {:+.3g} a minute",
        },
    }
    if "return_slope_per_s" in known:
        known["return_slope_per_s"] *= 60
    made = []
    for title, words in rows.items():
        shown = [word.format(known[name]) for name, word in words.items() if name in known]
        if shown:
            made.append(Text.assemble((f"{title}  ", "dim"), "  ".join(shown)))
    return made


def dropped(line: Mapping[str, Any], reasons: int) -> Text | None:
    """Dropped steps by reason, the most frequent first; rarer than `reasons` as one sum."""
    words = dropped_words(line, reasons)
    return Text.assemble(("Dropped for  ", "dim"), words) if words and reasons else None


def time_shares(flow: Flow, width: int) -> Table:
    """A bar for each role that has reported: its shares of working and waiting.

    The text names the largest waits, as many as fit a row of `width` cells.
    """
    cells = _BAR_CELLS if width >= _WIDE else _BAR_CELLS // 2
    boxes = [(box, box.working) for box in flow.boxes if box.working is not None]
    room = width - cells - max((len(box.role) for box, _ in boxes), default=0) - 4
    table = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, None, 1):
        table.add_column(ratio=ratio, no_wrap=True)
    for box, working in boxes:
        waits = sorted(box.waits)
        colours = {label: _WAIT_COLOURS[i % len(_WAIT_COLOURS)] for i, label in enumerate(waits)}
        words = Text.assemble((f"works {percent(working)}", "green"))
        for label, share in box.waits.items():
            wait = f"  {label} {percent(share)}"
            if len(words) + len(wait) > room:
                break
            words.append(wait, style=colours[label])
        segments = [(working, "green"), *((box.waits[label], colours[label]) for label in waits)]
        style = "bold red" if box.slowest else "bold"
        table.add_row(Text(box.role, style=style), _bar(segments, cells), words)
    return table


def role_table(roles: Sequence[Mapping[str, Any]], rows: int) -> Table:
    """The roles; of many, those in trouble first, then the number of the others."""
    trouble = [role for role in roles if _in_trouble(role)]
    shown = list(roles)
    if len(roles) > rows:
        shown = [*trouble, *(role for role in roles if role not in trouble)][:rows]
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    for title in ("Role", "State"):
        table.add_column(title, no_wrap=True)
    for title in ("Restarts", "Process"):
        table.add_column(title, justify="right", no_wrap=True)
    for role in shown:
        state = str(role.get("state", "?"))
        restarts = int(role.get("restarts") or 0)
        table.add_row(
            Text(_name(role)),
            Text(state, style=_STATE_COLOURS.get(state, "")),
            Text(str(restarts), style="yellow" if restarts else ""),
            Text(str(role["pid"]) if role.get("pid") else "-"),
        )
    if len(shown) < len(roles):
        table.add_row(Text(f"and {len(roles) - len(shown)} more", style="dim"))
    return table


def role_words(roles: Sequence[Mapping[str, Any]]) -> Text:
    """The roles as a sentence: "running: 12 actors, monitor-0; actor-3 waiting, 2 restarts"."""
    words = []
    for state in dict.fromkeys(str(r.get("state")) for r in roles if not _in_trouble(r)):
        alike = [r for r in roles if not _in_trouble(r) and r.get("state") == state]
        words.append(f"{state}: {', '.join(_counted(alike))}")
    for role in filter(_in_trouble, roles):
        restarts = int(role.get("restarts") or 0)
        again = f", {restarts} restart{'s' * (restarts > 1)}" if restarts else ""
        words.append(f"{_name(role)} {role.get('state')}{again}")
    return Text.assemble(("Roles  ", "bold"), printable("; ".join(words)))


def _counted(roles: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of a few processes, numbers of many: "12 actors", "monitor-0"."""
    counts = Counter(str(role.get("role")) for role in roles)
    few = {role.get("role"): _name(role) for role in roles}
    return [f"{count} {role}s" if count > 1 else few[role] for role, count in counts.items()]


def _in_trouble(role: Mapping[str, Any]) -> bool:
    return bool(role.get("state") not in ("running", "joined") or role.get("restarts"))


def _name(role: Mapping[str, Any]) -> str:
    return printable(str(role.get("name", role.get("role", "?"))))


def _bar(segments: Sequence[tuple[float, str]], cells: int) -> Text:
    """A bar of this many cells; segments are rounded so that their sum is exact."""
    bar, filled, total = Text(), 0, 0.0
    for share, colour in segments:
        total += share if math.isfinite(share) else 0.0
        until = min(cells, max(filled, round(total * cells)))
        bar.append("━" * (until - filled), style=colour)
        filled = until
    return bar.append("━" * (cells - filled), style="grey23")
