"""`index.html`: the policy of a small environment plays in a browser, by onnxruntime-web."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Final, NamedTuple

from aclearn.files import user_cache
from aclearn.runs import write_file
from aclearn.views.html_page import joined_texts, page_of
from services.evaluator.saved_policy import SavedRun

_STATIC: Final = Path(__file__).parent / "static"


class _Playground(NamedTuple):
    """An environment in JavaScript, and the shape of its observations."""

    script: str
    shape: tuple[int, ...]


_PLAYGROUNDS: Final = {"CartPole-v1": _Playground("cartpole.js", (4,))}
#: The files of onnxruntime-web that a page loads; `make onnxruntime-web` fetches them.
RUNTIME_FILES: Final = (
    "ort.wasm.min.js",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
_RUNTIME: Final = "onnxruntime-web"
_MODELS: Final = ("policy.onnx", "policy-compressed.onnx")
_BODY: Final = """<h1>{title} plays {env}</h1>
<canvas id="picture" width="600" height="300" role="img" aria-label="{env}"></canvas>
<p><button id="play">Pause</button> <button id="again">New episode</button>
<label>Model <select id="model"></select></label></p>
<dl>
<div><dt>action</dt><dd id="action">-</dd></div>
<div><dt>steps</dt><dd id="steps">0</dd></div>
<div><dt>return</dt><dd id="return">0</dd></div>
<div><dt>episodes</dt><dd id="episodes">0</dd></div>
<div><dt>mean return</dt><dd id="mean">-</dd></div>
</dl>
<p id="error" role="alert"></p>"""


def runtime_folder() -> Path:
    """Where `make onnxruntime-web` puts onnxruntime-web."""
    return user_cache() / _RUNTIME


def why_no_page(run: SavedRun) -> str | None:
    """Why there cannot be a page for a run; None: there can."""
    env = run.config.env
    known = _PLAYGROUNDS.get(env.id)
    if known is None:
        return f"a page plays {', '.join(_PLAYGROUNDS)}, and this is {env.id}"
    leaves = run.policy(None).spec.observation.values()
    if env.kwargs or [leaf.shape for leaf in leaves] != [known.shape]:
        return f"a page plays {env.id} without env.kwargs and with whole observations"
    lacks = [name for name in RUNTIME_FILES if not (runtime_folder() / name).is_file()]
    if lacks:
        return (
            f"onnxruntime-web is not there: {runtime_folder()} lacks {', '.join(lacks)}; fetch it "
            "as docs/publishing.md says (make onnxruntime-web)"
        )
    return None


def write_page(run: SavedRun, title: str, folder: Path) -> None:
    """Write `index.html` and its runtime beside the models in `folder`."""
    saved, env = run.policy(None), run.config.env.id
    for name in RUNTIME_FILES:
        write_file(folder / _RUNTIME / name, (runtime_folder() / name).read_bytes(), "--out")
    page = page_of(
        title,
        _BODY.format(title=html.escape(title), env=html.escape(env)),
        data={
            "input": next(iter(saved.spec.observation)),
            "models": [name for name in _MODELS if (folder / name).is_file()],
            "state": list(saved.architecture.state),
        },
        style=joined_texts(_STATIC, ("play.css",)),
        script=joined_texts(_STATIC, (_PLAYGROUNDS[env].script, "play.js")),
        library=f"{_RUNTIME}/{RUNTIME_FILES[0]}",
    )
    write_file(folder / "index.html", page.encode(), "--out")
