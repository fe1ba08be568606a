"""Populations that evolve: selection, mutation, lineage. Pure: no process, no clock, no file."""

from __future__ import annotations

from aclearn.population.lineage import Best, Lineage, Member, Round
from aclearn.population.load import load_selector, search_space
from aclearn.population.selector import Origin, Selector, checked
from aclearn.population.space import Parameter, SearchSpace, Values
from aclearn.population.standing import DEAD, Standing, best_first

#: Our selectors by their names; the `config_model` of each has its arguments.
SELECTORS = {
    "genetic": "aclearn.population.genetic:Genetic",
    "pbt": "aclearn.population.pbt:PBT",
    "mf_pbt": "aclearn.population.mf_pbt:MultipleFrequencies",
    "random_search": "aclearn.population.unselected:RandomSearch",
    "none": "aclearn.population.unselected:NoSelection",
}

__all__ = [
    "DEAD",
    "SELECTORS",
    "Best",
    "Lineage",
    "Member",
    "Origin",
    "Parameter",
    "Round",
    "SearchSpace",
    "Selector",
    "Standing",
    "Values",
    "best_first",
    "checked",
    "load_selector",
    "search_space",
]
