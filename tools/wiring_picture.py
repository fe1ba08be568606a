"""Writes the picture of processes and sockets in docs/architecture.md, from `services.wiring`.

python -m tools.wiring_picture
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aclearn.control import DIRECTIVES
from services.roles import ROLES
from services.wiring import ENDPOINTS, QUESTIONS

PAGE: Final = Path(__file__).parents[1] / "docs" / "architecture.md"
_BEGIN: Final = "<!-- written by tools/wiring_picture.py from services/wiring.py -->"
_END: Final = "<!-- end -->"


def page() -> str:
    """The page with its picture and table written again."""
    before, rest = PAGE.read_text("utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return before + "\n".join([_BEGIN, "", *_picture(), "", *_table(), "", _END]) + after


def _picture() -> Iterator[str]:
    yield from ("```mermaid", "flowchart LR", '    supervisor["aclearn train<br/>(supervisor)"]')
    for role, spec in ROLES.items():
        yield f'    {role}["{role}{f" × {spec.processes_key}" if spec.processes_key else ""}"]'
    for question in QUESTIONS:
        line, arrow = (".", ".-") if question.when else ("-", "--")
        words = question.endpoint + (f"<br/>({question.when})" if question.when else "")
        server = ENDPOINTS[question.endpoint].role
        yield f'    {question.role} -{line} "{words}" {arrow}> {server}'
    others = [role for role in ROLES if role != "monitor"]
    yield f'    {" & ".join(["supervisor", *others])} -- "monitor" --> monitor'
    yield "```"


def _table() -> Iterator[str]:
    yield "| endpoint | server | accepts | sends |"
    yield "|---|---|---|---|"
    for name, endpoint in ENDPOINTS.items():
        messages = [
            ", ".join(f"`{kind.__name__}`" for kind in kinds) or "file descriptors of the memory"
            for kinds in (endpoint.accepts, endpoint.sends)
        ]
        yield f"| `{name}` | {endpoint.role} | {' | '.join(messages)} |"
    yield ""
    yield "| directive | obeyed by |"
    yield "|---|---|"
    for kind in DIRECTIVES:
        yield f"| `{kind.__name__}` | {', '.join(kind.roles) or 'every role'} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
