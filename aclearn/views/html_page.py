"""An HTML file with its scripts, styles and data in it, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="data">{data}</script>
{library}<script>{script}</script>
</body>
</html>
"""


def page_of(
    title: str,
    body: str,
    *,
    data: Any,
    style: str,
    script: str,
    library: str | None = None,
) -> str:
    """The page; its own policy forbids all that is not in it.

    Args:
        body: of HTML, in which text is escaped.
        data: what JSON can hold; scripts find it in the element "data".
        library: path of another script, which computes with WebAssembly in files beside it;
            None: there is none.
    """
    sources, policy = [_source_of(script)], [f"style-src {_source_of(style)}"]
    if library is not None:
        sources = ["'self'", "'wasm-unsafe-eval'", *sources]
        policy.append("connect-src 'self'")
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(sources)}",
        *policy,
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return _PAGE.format(
        policy="; ".join(rules),
        title=html.escape(title),
        style=style,
        body=body,
        # "<" would end the element
        data=json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        library="" if library is None else f'<script src="{library}"></script>\n',
        script=script,
    )


def joined_texts(folder: Path, names: Sequence[str]) -> str:
    """The files of these names, one after another."""
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _source_of(text: str) -> str:
    """The source expression that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
