"""Configuration: frozen models over YAML, whose errors say how to mend them."""

from __future__ import annotations

from aclearn.config._check import validated
from aclearn.config._explain import got
from aclearn.config._fields import Group, Whole
from aclearn.config._yaml import YamlError, canonical_yaml, inline_yaml, parse_yaml
from aclearn.config.actors import MAX_PROCESSES, ActorsConfig
from aclearn.config.compressor import CompressorConfig
from aclearn.config.correctors import CorrectorConfig
from aclearn.config.env import EnvConfig
from aclearn.config.evaluator import EvaluatorConfig
from aclearn.config.learning import OptimiserConfig, ReplayConfig, TrainerConfig
from aclearn.config.load import (
    config_from_yaml,
    config_of_keys,
    load_config,
    override_keys,
    with_overrides,
)
from aclearn.config.loss import LossConfig
from aclearn.config.model import Config, Judge, RunConfig, doubts
from aclearn.config.monitor import TUNED_COUNTS, MonitorConfig, TunerConfig
from aclearn.config.network import NetworkConfig, SupervisorConfig
from aclearn.config.policies import PolicyOverrides
from aclearn.config.policy import PolicyConfig
from aclearn.config.population import PopulationConfig
from aclearn.config.predictor import PredictorConfig
from aclearn.config.ray import RayConfig
from aclearn.config.resident import ResidentConfig
from aclearn.config.shipped import shipped_config, shipped_configs, summary_of

__all__ = [
    "MAX_PROCESSES",
    "TUNED_COUNTS",
    "ActorsConfig",
    "CompressorConfig",
    "Config",
    "CorrectorConfig",
    "EnvConfig",
    "EvaluatorConfig",
    "Group",
    "Judge",
    "LossConfig",
    "MonitorConfig",
    "NetworkConfig",
    "OptimiserConfig",
    "PolicyConfig",
    "PolicyOverrides",
    "PopulationConfig",
    "PredictorConfig",
    "RayConfig",
    "ReplayConfig",
    "ResidentConfig",
    "RunConfig",
    "SupervisorConfig",
    "TrainerConfig",
    "TunerConfig",
    "Whole",
    "YamlError",
    "canonical_yaml",
    "config_from_yaml",
    "config_of_keys",
    "doubts",
    "got",
    "inline_yaml",
    "load_config",
    "override_keys",
    "parse_yaml",
    "shipped_config",
    "shipped_configs",
    "summary_of",
    "validated",
    "with_overrides",
]
