"""Kernels of a world: one for each phase of a step, which ends when all agents have done it.

On a GPU each agent is a thread. On a CPU, where a launch is a loop, the agents of a world are one:
it reads what they share once. Sums over agents are a loop in one thread, so they do not depend on
the number of threads.
"""

from typing import Any

from aclearn.resident.generator import CHOOSE, RESET, STEP, draws, stream_of
from aclearn.resident.kernels import (
    COHORTS,
    EPISODES,
    OUT_OF_RANGE,
    RESETS,
    RETURNS,
    SPREAD,
    STEP_BITS,
    Chooser,
)
from aclearn.resident.rows import Rows
from aclearn.resident.warp_setup import wp
from aclearn.resident.world import AgentKind, ResidentWorld
from aclearn.types.bounds import LARGEST_NUMBER

#: No contraction of a·b + c: CPU and GPU then round alike, so that ties stay ties.
_OPTIONS = {"enable_backward": False, "fuse_fp": False}


@wp.struct
class Flags:
    """What the engine knows of N worlds of A agents.

    Whether an agent takes part in the step, whether it leaves in it, and its reward, `[N, A]`;
    whether the last step ended the episode, how, and its length, `[N]`.
    """

    in_game: wp.array2d(dtype=wp.bool)
    left: wp.array2d(dtype=wp.bool)
    rewards: wp.array2d(dtype=wp.float32)
    over: wp.array(dtype=wp.bool)
    terminated: wp.array(dtype=wp.bool)
    truncated: wp.array(dtype=wp.bool)
    lengths: wp.array(dtype=wp.int32)


@wp.struct
class Clock:
    """Seed and number of steps since the start, `[1]` each."""

    seed: wp.array(dtype=wp.int32)
    steps: wp.array(dtype=wp.int32)


@wp.struct
class Sums:
    """The engine's `Episodes`: arrays by row of all kinds, by account, and by agent its account."""

    lengths: wp.array(dtype=wp.int32)
    returns: wp.array(dtype=wp.float32)
    ended: wp.array(dtype=wp.bool)
    episodes: wp.array(dtype=wp.int32)
    last_returns: wp.array(dtype=wp.float32)
    statistics: wp.array3d(dtype=wp.float64)
    cohorts: wp.array4d(dtype=wp.float64)
    cohort_steps: wp.int32
    out_of_range_at: wp.array(dtype=wp.int64)
    accounts: wp.array(dtype=wp.int32)


@wp.struct
class Record:
    """The `Buffers` of a kind, but for its observations, actions and log-probabilities."""

    rewards: wp.array2d(dtype=wp.float32)
    terminated: wp.array2d(dtype=wp.bool)
    truncated: wp.array2d(dtype=wp.bool)
    valid: wp.array2d(dtype=wp.bool)
    masks: wp.array3d(dtype=wp.bool)


@wp.func
def count_step(
    sums: Sums,
    q: wp.int32,
    account: wp.int32,
    place: wp.int32,
    now: wp.int32,
    length: wp.int32,
    reward: wp.float32,
    valid: wp.bool,
    over: wp.bool,
    out_of_range: wp.bool,
):
    """Count one agent's step: row q, at a place of its account's sums."""
    if out_of_range:
        wp.atomic_add(sums.statistics, account, place, OUT_OF_RANGE, wp.float64(1.0))
        where = (wp.int64(now) << wp.int64(STEP_BITS)) + wp.int64(q)
        wp.atomic_max(sums.out_of_range_at, 0, where)
    if valid:
        total = sums.returns[q] + reward
        sums.returns[q] = total
        sums.lengths[q] = length
        sums.ended[q] = over
        if over:
            sums.episodes[q] = sums.episodes[q] + 1
            sums.last_returns[q] = total
            wp.atomic_add(sums.statistics, account, place, EPISODES, wp.float64(1.0))
            wp.atomic_add(sums.statistics, account, place, RETURNS, wp.float64(total))
            c = ((now - length + 1) / sums.cohort_steps) % COHORTS
            wp.atomic_add(sums.cohorts, account, place, c, 0, wp.float64(1.0))
            wp.atomic_add(sums.cohorts, account, place, c, 1, wp.float64(total))
            wp.atomic_add(sums.cohorts, account, place, c, 2, wp.float64(length))
    else:
        wp.atomic_add(sums.statistics, account, place, RESETS, wp.float64(1.0))
    if length == 0:
        sums.returns[q] = 0.0
        sums.lengths[q] = 0
        sums.ended[q] = False


class WorldKernels:
    """The kernels of one world.

    Args:
        together: the agents of a world are one thread; otherwise each is one.
    """

    def __init__(self, world: ResidentWorld, *, together: bool) -> None:
        self._world, self._together = world, together
        self._begin = self._begin_function()

    def threads(self, agents: int) -> int:
        """The number of threads for so many agents of a world."""
        return 1 if self._together else agents

    def act(self, kind: AgentKind, rows: Rows, chooser: Chooser) -> Any:
        """Choose and move, `threads` for the agents of a kind.

        Arguments: the slice's first environment; worlds, agents, flags, params, source;
        observations `[T+1, N·A]`, actions and log-probabilities `[T, N·A]`; clock, steps ahead of
        it; the row of the observations, and that of the others.
        """
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        observation, first_agent = rows.observation_type, rows.first_agent
        choose, source_type, sampled = chooser.choose, chooser.source, rows.sampler.sampled
        move, to_env, count = kind.move, rows.sampler.to_env, len(kind.agents)
        threads = self.threads(count)
        each = count // threads

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def act(
            first: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
            source: source_type,
            observations: wp.array2d(dtype=observation),
            actions: wp.array2d(dtype=sampled),
            log_probs: wp.array2d(dtype=wp.float32),
            clock: Clock,
            ahead: wp.int32,
            seen: wp.int32,
            row: wp.int32,
        ):
            tid = wp.tid()
            e = first + tid / wp.static(threads)
            stream = stream_of(clock.seed[0], e)
            now = clock.steps[0] + ahead
            choosing = wp.int32(draws(stream, now, CHOOSE))
            moving = wp.int32(draws(stream, now, STEP))
            plays = not flags.over[e]
            world = worlds[e]
            for i in range(wp.static(each)):
                j = (tid % wp.static(threads)) * wp.static(each) + i
                r = e * wp.static(count) + j
                a = wp.static(first_agent) + j
                action, log_prob = choose(
                    source, seen, r, observations[seen, r], wp.rand_init(choosing, a)
                )
                if plays:
                    if flags.left[e, a]:  # in the step before
                        flags.in_game[e, a] = False
                    if flags.in_game[e, a]:
                        agents[e, a] = move(
                            agents[e, a],
                            world,
                            a,
                            to_env(action),
                            wp.rand_init(moving, a),
                            params,
                        )
                actions[row, r] = action
                log_probs[row, r] = log_prob

        return act

    def prepare(self) -> Any:
        """The world's `prepare`, a thread for each world."""
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        world_prepare = self._world.prepare

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def prepare(
            first: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
        ):
            e = first + wp.tid()
            world_prepare(worlds[e], agents[e], flags.in_game[e], params)

        return prepare

    def interact(self) -> Any:
        """Rewards and exits, `threads` for all agents."""
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        world_interact, count = self._world.interact, len(self._world.agents)
        threads = self.threads(count)
        each = count // threads

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def interact(
            first: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
        ):
            tid = wp.tid()
            e = first + tid / wp.static(threads)
            world = worlds[e]
            plays = not flags.over[e]
            for i in range(wp.static(each)):
                a = (tid % wp.static(threads)) * wp.static(each) + i
                reward = wp.float32(0.0)
                leaves = wp.bool(False)
                if plays and flags.in_game[e, a]:
                    reward, leaves = world_interact(world, agents[e], flags.in_game[e], a, params)
                flags.rewards[e, a] = reward
                flags.left[e, a] = leaves

        return interact

    def step(self) -> Any:
        """The world's own step, or the begin of an episode, a thread for each world."""
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        step_world, limit = self._world.step_world, self._world.time_limit
        count, begin = len(self._world.agents), self._begin

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def step(
            first: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
            clock: Clock,
            ahead: wp.int32,
        ):
            e = first + wp.tid()
            now = clock.steps[0] + ahead
            stream = stream_of(clock.seed[0], e)
            terminal = wp.bool(False)
            cut = wp.bool(False)
            if flags.over[e]:
                begin(e, draws(stream, now, RESET), worlds, agents, flags, params)
            else:
                world, terminal = step_world(
                    worlds[e],
                    agents[e],
                    flags.in_game[e],
                    flags.rewards[e],
                    flags.left[e],
                    draws(stream, now, STEP),
                    params,
                )
                worlds[e] = world
                length = flags.lengths[e] + 1
                flags.lengths[e] = length
                anyone = wp.bool(False)
                for a in range(wp.static(count)):
                    anyone = anyone or (flags.in_game[e, a] and not flags.left[e, a])
                terminal = terminal or not anyone
                cut = length >= wp.static(limit) and not terminal
            flags.over[e] = terminal or cut
            flags.terminated[e] = terminal
            flags.truncated[e] = cut

        return step

    def reset(self) -> Any:
        """The begin of an episode, a thread for each world."""
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        begin = self._begin

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def reset(
            first: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
            clock: Clock,
        ):
            e = first + wp.tid()
            stream = stream_of(clock.seed[0], e)
            begin(e, draws(stream, clock.steps[0], RESET), worlds, agents, flags, params)
            flags.over[e] = False
            flags.terminated[e] = False
            flags.truncated[e] = False

        return reset

    def _begin_function(self) -> Any:
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        reset_world, reset_agent = self._world.reset_world, self._world.reset_agent
        prepares, count = self._world.prepare is not None, len(self._world.agents)
        prepare = self._world.prepare

        @wp.func
        def begin(
            e: wp.int32,
            rng: wp.uint32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
        ):
            world = reset_world(e, rng, params)
            worlds[e] = world
            for a in range(wp.static(count)):
                agents[e, a] = reset_agent(world, a, wp.rand_init(wp.int32(rng), a), params)
                flags.in_game[e, a] = True
                flags.left[e, a] = False
                flags.rewards[e, a] = 0.0
            flags.lengths[e] = 0
            if wp.static(prepares):
                prepare(world, agents[e], flags.in_game[e], params)

        return begin

    def observe(self, kind: AgentKind, first_agent: int, *, shown: bool) -> Any:
        """Observations and the record of a step, `threads` for the agents of a kind.

        Arguments: the slice's first environment and its number; worlds, agents, flags, params;
        observations `[T+1, N·A, D]`; record, the kind's first row in `sums`, and these; clock,
        steps ahead of it; the row of the observations, and that of the others; whether a step was
        made.

        Args:
            shown: otherwise observations are not made.
        """
        of_world, of_agent, params_type = self._world.world, self._world.agent, self._world.params
        kind_observe, size, masks = kind.observe, kind.observation_size, kind.mask is not None
        kind_mask, count = kind.mask, len(kind.agents)
        threads = self.threads(count)
        each = count // threads

        @wp.kernel(module="unique", enable_backward=False, module_options=_OPTIONS)
        def observe(
            first: wp.int32,
            part: wp.int32,
            worlds: wp.array(dtype=of_world),
            agents: wp.array2d(dtype=of_agent),
            flags: Flags,
            params: params_type,
            observations: wp.array3d(dtype=wp.float32),
            record: Record,
            first_row: wp.int32,
            sums: Sums,
            clock: Clock,
            ahead: wp.int32,
            seen: wp.int32,
            row: wp.int32,
            stepped: wp.bool,
        ):
            tid = wp.tid()
            e = first + tid / wp.static(threads)
            world = worlds[e]
            length = flags.lengths[e]
            now = clock.steps[0] + ahead
            place = part * SPREAD + e % SPREAD
            for i in range(wp.static(each)):
                j = (tid % wp.static(threads)) * wp.static(each) + i
                r = e * wp.static(count) + j
                a = wp.static(first_agent) + j
                if wp.static(shown):
                    kind_observe(
                        world, agents[e], flags.in_game[e], a, params, observations[seen, r]
                    )
                if wp.static(masks):
                    kind_mask(world, agents[e], flags.in_game[e], a, params, record.masks[seen, r])
                if stepped:
                    valid = flags.in_game[e, a] and length > 0
                    reward = wp.float32(0.0)
                    terminal = wp.bool(False)
                    cut = wp.bool(False)
                    if valid:
                        reward = flags.rewards[e, a]
                        terminal = flags.left[e, a] or flags.terminated[e]
                        cut = flags.truncated[e] and not terminal
                    record.rewards[row, r] = reward
                    record.terminated[row, r] = terminal
                    record.truncated[row, r] = cut
                    record.valid[row, r] = valid
                    out = wp.where(wp.abs(reward) <= wp.static(LARGEST_NUMBER), 0, 1)
                    for d in range(wp.static(size if shown else 0)):  # false for NaN
                        fits = wp.abs(observations[seen, r, d]) <= wp.static(LARGEST_NUMBER)
                        out += wp.where(fits, 0, 1)
                    count_step(
                        sums,
                        first_row + r,
                        sums.accounts[a],
                        place,
                        now,
                        length,
                        reward,
                        valid,
                        terminal or cut,
                        out > 0,
                    )

        return observe
