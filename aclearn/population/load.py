"""The selector and the ranges of a configuration."""

from __future__ import annotations

from aclearn.config import Config
from aclearn.config.population import Mutable, SelectorConfig, mutable
from aclearn.extensions import make_extension
from aclearn.population.selector import Selector
from aclearn.population.space import Parameter, SearchSpace


def load_selector(entry: SelectorConfig) -> Selector:
    """The selector of `population.selector`.

    Raises:
        ConfigError: the user's class cannot be loaded or made, or is no selector.
    """
    from aclearn.population import SELECTORS  # which names this package's modules

    arguments = entry.arguments.model_dump()
    key = "population.selector"
    return make_extension(entry.name, arguments, key=key, expected=Selector, ours=SELECTORS)


def search_space(config: Config) -> SearchSpace:
    """The ranges of `population.mutate`, of a valid configuration."""
    found = []
    for key, (low, high) in config.population.mutate.items():
        parameter = mutable(config, key)
        assert isinstance(parameter, Mutable)
        first = config.population.first.get(key)
        ends = None if first is None else (first[0], first[1])
        found.append(Parameter(key, low, high, parameter.whole, ends))
    return SearchSpace.of(found)
