"""From an id in a configuration to a factory of environments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import gymnasium.vector

from aclearn.envs.parallel_vector_env import is_parallel
from aclearn.errors import EnvironmentFailure, did_you_mean, install_hint, kind_of
from aclearn.extensions import import_module, load_extension
from aclearn.types.atari_ids import guessed_id

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

#: Beginnings of ids → the module that registers them.
_REGISTERED_BY = {"MiniGrid-": "minigrid", "BabyAI-": "minigrid"}


def maker(env: EnvConfig) -> Callable[[], Any]:
    """A function that makes one `gymnasium.Env` or `pettingzoo.ParallelEnv`; not for Atari's ids.

    `module:factory` calls your factory with env.kwargs; `module:Name-v0` imports the module and
    then asks gymnasium, like any other id.

    Raises:
        EnvironmentFailure: the id is unknown.
    """
    module, _, target = env.id.rpartition(":")
    if module and all(part.isidentifier() for part in target.split(".")):
        call = _factory(env.id)
    else:
        if module:
            import_module(module, key=f"env.id {env.id!r}", error=EnvironmentFailure)
        call = _registered(env.id, target)

    def make() -> Any:
        try:
            return call(**copy.deepcopy(env.kwargs))  # it may keep and change a list
        except Exception as error:
            if missing := install_hint(error):
                raise EnvironmentFailure(f"env.id {env.id!r}: {missing}") from error
            raise

    return make


def vector_maker(env: EnvConfig, num_envs: int) -> Callable[[], Any]:
    """A function that makes a `gymnasium.vector.VectorEnv` of an id without its `vector:`.

    `module:factory` is called with `num_envs` and env.kwargs; a gymnasium id must have a vector
    environment of its own.

    Raises:
        EnvironmentFailure: the id is unknown.
    """
    target = env.target
    module, _, name = target.rpartition(":")
    key = f"env.id {env.id!r}"
    if module and all(part.isidentifier() for part in name.split(".")):
        factory: Any = load_extension(target, key="env.id", error=EnvironmentFailure)
    else:
        if module:
            import_module(module, key=key, error=EnvironmentFailure)
        if name.startswith("ALE/"):
            raise EnvironmentFailure(
                f"{key}: this vector environment clips rewards, so that returns would not be the "
                f"game's; expected env.id: {name}"
            )
        spec = gymnasium.registry.get(name)
        if spec is None or spec.vector_entry_point is None:
            raise EnvironmentFailure(
                f"{key}: gymnasium has no vector environment {name}; without vector: in front, "
                "single ones are stepped in turn"
            )
        factory = partial(gymnasium.make_vec, name, vectorization_mode="vector_entry_point")

    def make() -> Any:
        try:
            made = factory(num_envs=num_envs, **copy.deepcopy(env.kwargs))
        except Exception as error:
            if missing := install_hint(error):
                raise EnvironmentFailure(f"{key}: {missing}") from error
            raise
        if not isinstance(made, gymnasium.vector.VectorEnv):
            raise EnvironmentFailure(
                f"{key}: the factory returned {kind_of(made)} of {type(made).__module__}, expected "
                "a gymnasium.vector.VectorEnv; for single environments leave vector: out"
            )
        return made

    return make


def _registered(env_id: str, name: str) -> Callable[..., Any]:
    try:
        spec = copy.copy(gymnasium.spec(name))
    except gymnasium.error.Error as error:
        for beginning, module in _REGISTERED_BY.items():
            if name.startswith(beginning) and env_id == name:
                raise EnvironmentFailure(
                    f"env.id {env_id!r}: write {module}:{name}; if {module} is not installed, "
                    f"pip install 'aclearn[{module}]'"
                ) from error
        known_ids = [known for known in _known_ids() if known != name]
        raise EnvironmentFailure(
            f"env.id {env_id!r}: gymnasium knows no such environment"
            f"{did_you_mean(guessed_id(name), known_ids) or '.'} "
            "An environment of another package needs the package's name in front "
            f"(package:{name}), your own a factory (module:factory), an Atari game its present id "
            "(ALE/Pong-v5)"
        ) from error
    # The two checking wrappers cost 2 µs a step; our loop makes the same checks.
    spec.order_enforce = False
    return partial(gymnasium.make, spec, disable_env_checker=True)


def _known_ids() -> list[str]:
    import ale_py  # noqa: F401  # registers the Atari ids; only a wrong id pays for it

    # outdated ids of Atari games, without ALE/
    return [
        known
        for known, spec in gymnasium.registry.items()
        if known.startswith("ALE/") or not str(spec.entry_point).startswith("ale_py")
    ]


def _factory(env_id: str) -> Callable[..., Any]:
    factory: Any = load_extension(env_id, key="env.id", error=EnvironmentFailure)
    if not callable(factory):
        raise EnvironmentFailure(
            f"env.id {env_id!r} is {kind_of(factory)}, expected a callable that returns "
            "a gymnasium.Env or a pettingzoo.ParallelEnv"
        )

    def make(**kwargs: Any) -> Any:
        made = factory(**kwargs)
        if not (isinstance(made, gymnasium.Env) or is_parallel(made)):
            raise EnvironmentFailure(
                f"env.id {env_id!r}: the factory returned {kind_of(made)} "
                f"of {type(made).__module__}, expected a gymnasium.Env or a pettingzoo.ParallelEnv"
                f"{'; use its parallel_env' if hasattr(made, 'agent_iter') else ''}"
            )
        return made

    return make
