"""The table of keys, and the pages that are made of the models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aclearn.algorithms import ALGORITHMS
from aclearn.config import (
    ActorsConfig,
    Config,
    config_from_yaml,
)
from aclearn.config._yaml import parse_yaml
from compress import LINKS
from tools.key_pages import configuration_page, describe_config, links_page

ROOT = Path(__file__).parents[2]


def test_each_key_is_described_with_its_type_its_bounds_and_its_default() -> None:
    knobs = {knob.key: knob for knob in describe_config()}

    assert knobs["run.metrics_every_s"][1:] == (
        "number > 0 and ≤ 5",
        "2.0",
        "time between two lines of metrics.jsonl, in seconds",
    )
    assert knobs["env.id"].default == "required"
    assert knobs["env.kwargs"].default == "{}"
    assert knobs["run.max_updates"][1:3] == ("whole number ≥ 1 or null", "null")
    assert knobs["correctors"].type.startswith("list of vtrace, importance_sampling, epsilon_")
    assert knobs["correctors"].type.endswith(
        ", or module:Name of yours, each alone or as `name: {arguments}`"
    )
    assert knobs["correctors"].default == "[vtrace, importance_sampling]"
    assert knobs["compressor.chain"].type.startswith("list of prune, distill, low_rank, quantize,")
    assert "| `lambda` | number ≥ 0 and ≤ 1 | `1.0` |" in configuration_page()
    assert knobs["trainer.amp"][1:3] == ("one of auto, off, bf16", "auto")
    assert knobs["env.atari.screen_size"].default == "84"


def test_the_described_keys_are_those_of_a_written_configuration_and_of_the_pages_tables() -> None:
    config = Config.model_validate({"env": {"id": "a"}, "policies": {"NAME": {"agents": "*"}}})
    written = parse_yaml(Config.model_validate({"env": {"id": "a"}}).to_yaml()).value
    written["policies"] = parse_yaml(config.to_yaml()).value["policies"]
    described = [knob.key for knob in describe_config()]

    def dotted(section: dict[str, object], prefix: str = "") -> list[str]:
        keys = []
        for key, value in section.items():
            name = f"{prefix}{key}"
            is_section = isinstance(value, dict) and name not in described
            keys += (dotted(value, f"{name}.") if is_section else []) or [name]
        return keys

    assert described == dotted(written)
    tables = []
    for part in configuration_page().split("\n## ")[1:]:
        own = part.partition("\n### ")[0]  # the tables of correctors and strategies follow it
        tables += [line.split("`")[1] for line in own.splitlines() if line.startswith("| `")]
    assert tables == described


def test_every_key_says_what_it_means_and_every_time_says_its_unit() -> None:
    knobs = describe_config()

    assert [knob.key for knob in knobs if not knob.description] == []
    assert [k.key for k in knobs if k.key.endswith("_s") and "second" not in k.description] == []
    assert [k.key for k in knobs if k.key.endswith("_bytes") and "bytes" not in k.description] == []


def test_the_default_of_each_key_reads_back_to_the_default_of_the_model() -> None:
    knobs = {knob.key: knob.default for knob in describe_config()}

    for name, value in ActorsConfig():
        assert parse_yaml(knobs[f"actors.{name}"]).value == value


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_page_of_algorithms_has_the_settings_that_each_brings(kind: str) -> None:
    text = f"env: {{id: a, squash_actions: true}}\nresident: {{envs: 8}}\nloss: {{kind: {kind}}}"
    config = config_from_yaml(text)
    page = (ROOT / "docs/algorithms.md").read_text(encoding="utf-8")
    figures = (config.actors.unroll_length, config.trainer.epochs, config.trainer.minibatches)
    # an algorithm may have a row for each source of its batches
    rows = [row.split("|")[1:] for row in page.splitlines() if row.startswith(f"| `{kind}`")]
    assert [*map(str, figures)] in [[cell.strip() for cell in row[1:4]] for row in rows]


@pytest.mark.parametrize(
    ("name", "text"),
    [("configuration", configuration_page), ("links", partial(links_page, LINKS))],
    ids=["configuration", "links"],
)
def test_the_page_in_docs_is_current(name: str, text: Callable[[], str]) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert page == text(), f"docs/{name}.md is out of date; run `make docs`"
