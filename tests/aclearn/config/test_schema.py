"""The JSON schema of a configuration says yes and no as the reader does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from aclearn.config import Config, config_from_yaml, parse_yaml
from aclearn.config.schema import config_schema
from aclearn.errors import ConfigError

_CONFIGS = Path(__file__).parents[3] / "configs"
_ENV = "env: {id: CartPole-v1}\n"


@pytest.fixture(scope="module")
def mistakes() -> Any:
    """The keys of a text that the schema refuses."""
    schema = config_schema()
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)

    def mistakes(text: str) -> list[str]:
        errors = validator.iter_errors(parse_yaml(text).value)
        return [".".join(map(str, error.absolute_path)) for error in errors]

    return mistakes


def test_shipped_configurations_and_one_with_every_key_are_valid(mistakes) -> None:
    for path in _CONFIGS.rglob("*.yaml"):
        assert mistakes(path.read_text()) == [], path
    policies = {"NAME": {"agents": "*"}}
    everything = Config.model_validate({"env": {"id": "a"}, "policies": policies})
    assert mistakes(everything.to_yaml()) == []


@pytest.mark.parametrize(
    "text",
    [
        "run: {max_updates: 1e7, name: 42}",
        "run:",
        "run: {max_env_steps: 10_000_000}",
        "run: {target_return: null}",
        "actors: {processes: auto}",
        "loss: {kind: ppo, clip_range: 0.1}",
        "loss: {kind: 'mine:Loss', anything: 3}",
        "correctors: auto",
        "correctors: [vtrace: {rho_bar: .inf}, 'mine:Corrector': {x: 1}]",
        "correctors: [importance_sampling, vtrace: {lambda: 0.5}]",
        "compressor: {chain: [prune: 0.5, int8, onnx]}",
        "compressor: {chain: [prune: {sparsity: 0.5, per_layer: {convolutions: 0}}, onnx]}",
        "compressor: {chain: [quantize: INT8, onnx]}",
        "compressor: {chain: [{distill: {student: accerl-net1, steps: 4}}]}",
        "compressor: {ladder: [[fp16], []]}",
        "monitor: {strategies: [threshold]}",
        "metrics: {sinks: [{wandb: {project: p}}, 'mine:Sink']}",
        "population: {members: 4, mutate: {optimiser: {learning_rate: [1e-5, 1e-2]}}}",
        "policy: {architecture: 'mine:Net', arguments: {width: 3}}",
    ],
)
def test_what_the_reader_takes_is_valid(mistakes, text: str) -> None:
    config_from_yaml(_ENV + text)
    assert mistakes(_ENV + text) == []


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("run: {sed: 1}", "run"),
        ("runs: {seed: 1}", ""),
        ("run: {seed: 1.5}", "run.seed"),
        ("run: {seed: -1}", "run.seed"),
        ("run: {deterministic: 1}", "run.deterministic"),
        ("actors: {processes: automatic}", "actors.processes"),
        ("loss: {kind: sacc}", "loss.kind"),
        ("loss: {kind: sac, clip_range: 0.1}", "loss"),
        ("loss: {clip_rang: 0.1}", "loss"),
        ("correctors: [vtraces]", "correctors"),
        ("correctors: [vtrace: {rho: 1.0}]", "correctors"),
        ("correctors: [vtrace: {rho_bar: -1}]", "correctors"),
        ("compressor: {chain: [prun: 0.5]}", "compressor.chain.0"),
        ("compressor: {chain: [prune: 1.5]}", "compressor.chain.0"),
        ("compressor: {chain: [prune: {sparsities: 0.5}]}", "compressor.chain.0"),
        ("compressor: {chain: [quantize: int7]}", "compressor.chain.0"),
        ("compressor: {ladder: [[fp17], []]}", "compressor.ladder.0.0"),
        ("monitor: {strategies: [{threshold: {gate: 3}}]}", "monitor.strategies.0"),
        ("metrics: {sinks: [{wandb: {projects: p}}]}", "metrics.sinks.0"),
        ("policies: {red: {agent: x}}", "policies.red"),
        ("policy: {architecture: resnett}", "policy.architecture"),
    ],
)
def test_what_the_reader_refuses_is_refused_where_it_stands(mistakes, text: str, key: str) -> None:
    if not text.startswith("compressor: {"):  # links are read later, by their own package
        with pytest.raises(ConfigError):
            config_from_yaml(_ENV + text)
    assert key in mistakes(_ENV + text)
