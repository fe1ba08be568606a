"""The model card: README.md with a model hub's front matter."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aclearn.config._yaml import dump_yaml
from aclearn.metrics.formatting import duration
from aclearn.metrics.seed_statistics import mean_interval
from compress import Artifact
from compress.runtimes.onnx_runtime import new_session
from services.commands.publishing.weights import place_of
from services.evaluator.evaluate import Evaluation
from services.evaluator.saved_policy import SavedRun

#: ONNX's words for what numpy calls otherwise.
_DTYPES: Final = {"float": "float32", "bool": "bool_"}
_TASK: Final = "reinforcement-learning"


@dataclass(frozen=True)
class Card:
    """What the card says.

    Attributes:
        scores: policy → its evaluation; the policies that are described.
        models: policy → model's file → what it was made of.
        video: its file; None without one.
        page: whether `index.html` is there.
        wall_s: seconds of training; None if unknown.
    """

    title: str
    run: SavedRun
    scores: Mapping[str, Evaluation]
    models: Mapping[str, Mapping[str, Artifact]]
    licence: str
    video: str | None
    curve: bool
    page: bool
    wall_s: float | None


def card_of(card: Card, folder: Path) -> str:
    """The text of README.md, whose lines of Python work in `folder`, where the models are."""
    parts = ["---", dump_yaml(_front_matter(card)).rstrip(), "---", ""]
    parts += [f"# {card.title}", "", _opening(card), ""]
    if card.video is not None:
        moves = card.video.endswith(".gif")
        parts += [f"![an episode]({card.video})" if moves else f"[An episode]({card.video})", ""]
    parts += ["## Training", "", *_facts(card), ""]
    if card.curve:
        parts += ["![learning curve](curve.png)", ""]
    parts += ["## Evaluation", "", *_scores(card), "", "## Load", ""]
    parts += ["In this folder, with aclearn:", ""]
    for name in card.scores:
        parts += ["```python", *_with_aclearn(card, name), "```", ""]
    parts += ["Without it, by onnxruntime and numpy:", ""]
    for name in card.scores:
        model = f"{place_of(card.run, name)}policy.onnx"
        parts += ["```python", *_without_aclearn(folder, model), "```", ""]
    parts += [*_about_inputs(card), "", "## Files", "", *_files(card), ""]
    return "\n".join(parts)


def _front_matter(card: Card) -> dict[str, Any]:
    env, several = card.run.config.env.id, len(card.scores) > 1
    results = [
        {
            "task": {"type": _TASK, "name": _TASK},
            "dataset": {"name": f"{env}, {name}" if several else env, "type": env},
            "metrics": [
                {
                    "type": "mean_reward",
                    "name": "mean_reward",
                    "value": f"{score.mean:.2f} +/- {score.deviation:.2f}",
                    "verified": False,
                }
            ],
        }
        for name, score in card.scores.items()
    ]
    algorithms = dict.fromkeys(card.run.policies[name].config.loss.kind for name in card.scores)
    return {
        "license": card.licence,
        "library_name": "aclearn",
        "pipeline_tag": _TASK,
        "tags": [_TASK, "onnx", *algorithms, env],
        "model-index": [{"name": card.title, "results": results}],
    }


def _opening(card: Card) -> str:
    names = [*card.scores]
    who = "A policy" if len(names) == 1 else f"{len(names)} policies ({', '.join(names)})"
    others = [name for name in card.run.policies if name not in names]
    against = f"; {', '.join(others)} play{'s' if len(others) == 1 else ''} too" if others else ""
    version = importlib.metadata.version("aclearn")
    return f"{who} for {_code(card.run.config.env.id)}{against}, trained by aclearn {version}."


def _facts(card: Card) -> Iterator[str]:
    config, state = card.run.config, card.run.checkpoint.state
    one = next(iter(card.run.policies.values()))
    yield "| | |"
    yield "|---|---|"
    yield f"| environment | {_code(config.env.id)} |"
    for name in card.scores:
        saved = card.run.policies[name]
        of = f", {name}" if card.run.config.policies else ""
        yield f"| algorithm{of} | {_code(saved.config.loss.kind)} |"
        yield (
            f"| network{of} | {_code(saved.trained.name)}, {saved.trained.parameters:,} weights, "
            f"{saved.updates:,} updates |"
        )
    yield f"| agent steps | {int(state['account']['env_steps']):,} |"
    if card.wall_s is not None:
        yield f"| training time | {duration(card.wall_s)} |"
    yield f"| machine | {_code(one.machine)} |"
    yield f"| seed | {config.run.seed} |"
    yield "| all settings | [config.yaml](config.yaml) |"


def _scores(card: Card) -> Iterator[str]:
    yield "| policy | episodes | actions | mean return | 95 % interval | deviation | length |"
    yield "|---|---|---|---|---|---|---|"
    for name, score in card.scores.items():
        interval = mean_interval(score.returns)
        ends = "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"
        yield (
            f"| {name} | {len(score.returns)} | {'greedy' if score.greedy else 'sampled'} | "
            f"{score.mean:.2f} | {ends} | {score.deviation:.2f} | {score.length_mean:.1f} |"
        )
    yield ""
    yield "The interval is that of the mean over episodes, by the bootstrap."


def _with_aclearn(card: Card, policy: str) -> list[str]:
    chosen = f', policy="{policy}"' if card.run.config.policies else ""
    return [
        "import aclearn",
        f'policy = aclearn.load("."{chosen})',
        "action = policy.act(policy.observation_space.sample(), greedy=True)",
    ]


def _without_aclearn(folder: Path, model: str) -> list[str]:
    """Lines that run a model on zeros of the right shapes."""
    session = new_session((folder / model).read_bytes())
    given = [f'"{each.name}": {_zeros(each)}' for each in session.get_inputs()]
    names = [each.name for each in session.get_outputs() if each.name.startswith("action")]
    wanted = "[" + ", ".join(f'"{name}"' for name in names) + "]"
    return [
        "import numpy as np, onnxruntime",
        f'session = onnxruntime.InferenceSession("{model}")',
        f"{'action' if len(names) == 1 else 'actions'}{',' * (len(names) == 1)} = "
        f"session.run({wanted}, {{{', '.join(given)}}})",
    ]


def _zeros(given: Any) -> str:
    kind = given.type.removeprefix("tensor(").removesuffix(")")
    dtype = f"np.{_DTYPES.get(kind, kind)}"
    make = "ones" if kind == "bool" else "zeros"  # a mask leaves something
    return f"np.{make}({(1, *given.shape[1:])}, {dtype})"


def _about_inputs(card: Card) -> Iterator[str]:
    yield (
        "`action` is the most probable choice, or the mean, as the environment takes it. The "
        "model's metadata say as JSON how an observation of the environment becomes its inputs."
    )
    if any(card.run.policies[name].architecture.state for name in card.scores):
        yield ""
        yield (
            "The policy remembers: each output `next_state_…` is the input `state_…` of the next "
            "step, and zeros begin an episode. `policy.reset()` does that in aclearn."
        )


def _files(card: Card) -> Iterator[str]:
    yield "| file | content |"
    yield "|---|---|"
    for name, models in card.models.items():
        place = place_of(card.run, name)
        for file, artifact in models.items():
            yield f"| `{place}{file}` | {_of_model(artifact)} |"
        yield f"| `{place}model.safetensors` | the weights by name, float32 |"
    yield "| `config.yaml`, `checkpoints/` | what `aclearn.load` reads; all weights |"
    yield "| `evaluation.json` | every episode of the evaluation |"
    if card.curve:
        yield "| `curve.png` | the return over time and steps |"
    if card.video is not None:
        yield f"| `{card.video}` | an episode |"
    if card.page:
        yield (
            "| `index.html` | plays the policy in a browser; `python -m http.server` here, then "
            "<http://127.0.0.1:8000/> |"
        )


def _of_model(artifact: Artifact) -> str:
    if artifact.chain == "onnx":
        return f"ONNX, {artifact.bytes:,} bytes of weights"
    fidelity = artifact.fidelity
    return (
        f"ONNX through {_code(artifact.chain)}, {artifact.bytes:,} bytes of weights, KL "
        f"{fidelity.kl_mean:.3g} nats to the uncompressed policy, the same action on "
        f"{fidelity.agreement:.1%} of {fidelity.observations} observations"
    )


def _code(text: str) -> str:
    """Text as code in a table, whatever is in it."""
    plain = text.replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
