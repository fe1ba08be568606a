"""Kernels of an environment: several steps in one launch, one environment a thread.

Resets are at the next step, as in gymnasium's vector environments: the step after an end ignores
its action, begins the next episode and is not valid. So row t + 1 of the observations is always
what step t reached.
"""

from dataclasses import dataclass
from typing import Any

from aclearn.distributions.categorical import MASKED
from aclearn.resident.environment import ResidentEnv
from aclearn.resident.generator import CHOOSE, RESET, STEP, draws, stream_of
from aclearn.resident.sampling import Sampler
from aclearn.resident.warp_setup import wp
from aclearn.types.bounds import LARGEST_NUMBER

#: Columns of the statistics: ended episodes, the sum of their returns; resets; steps with a number
#: out of range.
EPISODES, RETURNS, RESETS, OUT_OF_RANGE = range(4)
STATISTICS = 4
#: Rows of statistics of a slice, by environment: a GPU's threads would wait for each other at one.
SPREAD = 64
#: Groups of episodes by their first step, in a ring; columns: episodes, the sums of their returns
#: and of their lengths.
COHORTS, COHORT_SUMS = 64, 3
#: A place where a number was out of range: step · 2^this + environment.
STEP_BITS = 32


@dataclass(frozen=True)
class Chooser:
    """How actions are chosen in a rollout, of observations of one type.

    Attributes:
        source: a Warp struct of the arrays that it reads.
        choose: `(source, row, environment, observation, rng) → sampled action, log-probability`.
    """

    source: Any
    choose: Any


@wp.struct
class Nothing:
    """The source of uniform choices."""

    unused: wp.int32


def uniform_chooser(observation: Any, sampler: Sampler) -> Chooser:
    """Every choice alike; the log-probability is given as 0."""
    uniform = sampler.uniform

    @wp.func
    def choose(source: Nothing, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
        return uniform(rng), 0.0

    return Chooser(Nothing, choose)


def allowed_chooser(observation: Any, sampler: Sampler, width: int) -> Chooser:
    """Every choice alike that its mask `[T+1, N, W]` allows."""
    parameters, sample = sampler.parameters, sampler.sample

    @wp.struct
    class Masks:
        masks: wp.array3d(dtype=wp.bool)

    @wp.func
    def choose(source: Masks, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
        logits = parameters()
        for choice in range(wp.static(width)):
            if not source.masks[k, i, choice]:
                logits[choice] = wp.static(MASKED)
        action, log_prob = sample(logits, rng)
        return action, log_prob

    return Chooser(Masks, choose)


def given_chooser(observation: Any, sampler: Sampler) -> Chooser:
    """Actions `[1, N]` that the caller wrote before the launch."""

    @wp.struct
    class Given:
        actions: wp.array2d(dtype=sampler.sampled)

    @wp.func
    def choose(source: Given, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
        return source.actions[0, i], 0.0

    return Chooser(Given, choose)


def parameters_chooser(observation: Any, sampler: Sampler) -> Chooser:
    """Sampled by parameters `[N, P]` that a network wrote before the launch."""
    sample = sampler.sample

    @wp.struct
    class Parameters:
        parameters: wp.array(dtype=sampler.parameters)

    @wp.func
    def choose(source: Parameters, k: wp.int32, i: wp.int32, seen: observation, rng: wp.uint32):
        action, log_prob = sample(source.parameters[i], rng)
        return action, log_prob

    return Chooser(Parameters, choose)


def rollout_kernel(env: ResidentEnv, sampler: Sampler, chooser: Chooser, *, recorded: bool) -> Any:
    """A kernel of K steps, the state in registers.

    Arguments: state, steps and returns of the running episodes, whether the last step ended one,
    number of ended episodes and return of the last (each `[N]`); statistics
    `[groups · slices · 64, 4]`; cohorts `[groups · slices · 64, 64, 3]`, and the number of steps in
    which one begins; a place `[1]` where a number was out of range; params; source; observations
    `[T+1, N]`, actions, log-probabilities, rewards, terminated, truncated and valid `[T, N]`; seeds
    `[groups]` and number of steps since the start `[1]`, and how many more before the first step;
    K; its row; the slice's first environment and number.
    """
    observation = env.observation_type
    env_reset, env_step, env_observe, limit = env.reset, env.step, env.observe, env.time_limit
    to_env, choose, sampled = sampler.to_env, chooser.choose, sampler.sampled
    state_type, params_type, source_type = env.state, env.params, chooser.source

    @wp.func
    def in_range(seen: observation, reward: wp.float32) -> wp.bool:
        fits = wp.abs(reward) <= wp.static(LARGEST_NUMBER)  # false for NaN
        for j in range(wp.static(env.observation_size)):
            fits = fits and wp.abs(seen[j]) <= wp.static(LARGEST_NUMBER)
        return fits

    @wp.kernel(module="unique", enable_backward=False, module_options={"enable_backward": False})
    def rollout(
        states: wp.array(dtype=state_type),
        lengths: wp.array(dtype=wp.int32),
        returns: wp.array(dtype=wp.float32),
        ended: wp.array(dtype=wp.bool),
        episodes: wp.array(dtype=wp.int32),
        last_returns: wp.array(dtype=wp.float32),
        statistics: wp.array2d(dtype=wp.float64),
        cohorts: wp.array3d(dtype=wp.float64),
        cohort_steps: wp.int32,
        out_of_range_at: wp.array(dtype=wp.int64),
        params: params_type,
        source: source_type,
        observations: wp.array2d(dtype=observation),
        actions: wp.array2d(dtype=sampled),
        log_probs: wp.array2d(dtype=wp.float32),
        rewards: wp.array2d(dtype=wp.float32),
        terminated: wp.array2d(dtype=wp.bool),
        truncated: wp.array2d(dtype=wp.bool),
        valid: wp.array2d(dtype=wp.bool),
        seed: wp.array(dtype=wp.int32),
        clock: wp.array(dtype=wp.int32),
        ahead: wp.int32,
        count: wp.int32,
        row: wp.int32,
        first: wp.int32,
        part: wp.int32,
    ):
        i = first + wp.tid()
        state = states[i]
        length = lengths[i]
        total = returns[i]
        over = ended[i]
        group = wp.int32(0)
        of_group = i
        sums = part * SPREAD + i % SPREAD
        if seed.shape[0] > 1:  # divisions take as long as a step
            each = states.shape[0] / seed.shape[0]
            group = i / each
            of_group = i - group * each
            sums += group * (statistics.shape[0] / seed.shape[0])
        stream = stream_of(seed[group], of_group)
        step0 = clock[0] + ahead
        seen = observation(env_observe(state, params))
        # summed in registers: additions of all threads to one place would take longer than steps
        ends = wp.int32(0)
        resets = wp.int32(0)
        broken = wp.int32(0)
        returns_sum = wp.float64(0.0)
        for k in range(count):
            now = step0 + k
            action, log_prob = choose(source, row + k, i, seen, draws(stream, now, CHOOSE))
            reward = wp.float32(0.0)
            terminal = wp.bool(False)
            cut = wp.bool(False)
            begins = over
            if begins:
                state = env_reset(draws(stream, now, RESET), params)
                length = 0
                total = 0.0
                resets += 1
            else:
                state, reward, terminal = env_step(
                    state, to_env(action), draws(stream, now, STEP), params
                )
                length += 1
                total += reward
                cut = length >= limit and not terminal
            over = terminal or cut
            seen = observation(env_observe(state, params))
            if not in_range(seen, reward):
                broken += 1
                place = (wp.int64(now) << wp.int64(STEP_BITS)) + wp.int64(i)
                wp.atomic_max(out_of_range_at, 0, place)  # one number: of one step, whatever thread
            if over:
                last_returns[i] = total
                ends += 1
                returns_sum += wp.float64(total)
                cohort = ((now - length + 1) / cohort_steps) % COHORTS
                wp.atomic_add(cohorts, sums, cohort, 0, wp.float64(1.0))
                wp.atomic_add(cohorts, sums, cohort, 1, wp.float64(total))
                wp.atomic_add(cohorts, sums, cohort, 2, wp.float64(length))
            if wp.static(recorded):
                observations[row + k + 1, i] = seen
                actions[row + k, i] = action
                log_probs[row + k, i] = log_prob
                rewards[row + k, i] = reward
                terminated[row + k, i] = terminal
                truncated[row + k, i] = cut
                valid[row + k, i] = not begins
        states[i] = state
        lengths[i] = length
        returns[i] = total
        ended[i] = over
        if ends > 0:
            episodes[i] = episodes[i] + ends
            wp.atomic_add(statistics, sums, EPISODES, wp.float64(ends))
            wp.atomic_add(statistics, sums, RETURNS, returns_sum)
        if resets > 0:
            wp.atomic_add(statistics, sums, RESETS, wp.float64(resets))
        if broken > 0:
            wp.atomic_add(statistics, sums, OUT_OF_RANGE, wp.float64(broken))

    return rollout


def reset_kernel(env: ResidentEnv) -> Any:
    """A kernel that begins an episode in every environment and writes observations `[., N]`."""
    observation = env.observation_type
    env_reset, env_observe = env.reset, env.observe
    state_type, params_type = env.state, env.params

    @wp.kernel(module="unique", enable_backward=False, module_options={"enable_backward": False})
    def reset(
        states: wp.array(dtype=state_type),
        params: params_type,
        observations: wp.array2d(dtype=observation),
        seed: wp.array(dtype=wp.int32),
        now: wp.int32,
        begins: wp.bool,
        row: wp.int32,
    ):
        i = wp.tid()
        if begins:
            each = states.shape[0] / seed.shape[0]
            stream = stream_of(seed[i / each], i % each)
            states[i] = env_reset(draws(stream, now, RESET), params)
        observations[row, i] = observation(env_observe(states[i], params))

    return reset
