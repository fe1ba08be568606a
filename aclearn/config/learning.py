"""The groups `trainer`, `replay` and `optimiser`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import AtMostTwo, Device, Group, Whole

#: Largest `optimiser.learning_rate`.
MOST_LEARNING_RATE = 10.0
#: Links of a chain that round, and others that compute the same network.
_ROUNDING = frozenset({"int8", "fp16", "bf16"})
_HALVES = frozenset({"fp16", "bf16"})
_SAME_NETWORK = frozenset({"fuse", "onnx", "torchscript"})


def _link(item: Any) -> str:
    """The name of a link in a chain; of `quantize` its precision."""
    name, given = next(iter(item.items()), ("", None)) if isinstance(item, dict) else (item, None)
    if name != "quantize":
        return str(name)
    if isinstance(given, dict):
        given = given.get("precision")
    return "int8" if given is None else str(given).lower()


class TrainerConfig(Group):
    """The trainer: its device, its queue, and how much it learns from one update."""

    device: Device = Field(
        default="auto",
        description="device of the trainer: auto (a GPU if there is one), cpu, cuda or cuda:N",
    )
    amp: Literal["auto", "off", "bf16"] = Field(
        default="auto",
        description="number format of forward and backward pass; auto: off, which is fp32, but for "
        "images of 32 × 32 pixels and more bf16 if the device has it; "
        "config.yaml of the run has the format in place of auto",
    )
    channels_last: bool = Field(
        default=True, description="store images channels-last, which is faster for convolutions"
    )
    compile: bool = Field(
        default=False,
        description="compile the update with torch.compile; the start takes about a minute longer",
    )
    workers: AtMostTwo = Field(
        default=1,
        ge=1,
        le=64,
        description="trainer workers of the one trainer process (NT); auto: two, or one on a "
        "single core",
    )
    processes: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="trainer processes that learn as one (ranks): each has its own actors, queue "
        "and batches, and every update adds up the gradients of all, as of one batch that is so "
        "many times larger",
    )
    average_every: Whole | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="batches between two averages of the ranks' weights and moments, in place of "
        "adding up each gradient (local SGD): each rank makes its own updates; null: add up",
    )
    join_within_s: float = Field(
        default=120.0,
        gt=0.0,
        le=86_400.0,
        description="time for all trainer processes to find each other, in seconds",
    )
    share_weights: Literal["auto", "host", "off"] = Field(
        default="auto",
        description="memory for new weights that roles of this machine map: auto (the trainer's "
        "GPU if predictors use it, else the host's), host, or off (over sockets, as between "
        "machines)",
    )
    unrolls_per_batch: Whole = Field(
        default=2,
        ge=1,
        le=1024,
        description="size of a batch, in unrolls",
    )
    minibatches: Whole = Field(
        default=1,
        ge=1,
        le=1024,
        description="parts of a batch, one update each: some of its environments, or with ppo and "
        "impact single steps of all environments, shuffled for each epoch (of a policy with a "
        "memory whole sequences, shuffled); the default depends on loss.kind",
    )
    epochs: Whole = Field(
        default=1,
        ge=1,
        le=32,
        description="passes over each batch; the default depends on loss.kind",
    )
    burn_in_steps: Whole = Field(
        default=0,
        ge=0,
        le=65_536,
        description="policy.memory: first steps of each unroll in which the newest weights only "
        "bring the state up to date; they are not learned, and count as dropped (burn_in)",
    )
    queue_bytes: Whole = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        description="bound of the training queue, in bytes; actors wait while it is full; one "
        "batch always fits",
    )
    queue_batches: Whole = Field(
        default=1,
        ge=1,
        le=1024,
        description="batches that may wait on the training queue; each adds one version of lag",
    )
    max_lag_versions: Whole = Field(
        default=100,
        ge=0,
        description="largest lag of a learned unroll, in policy versions (one for each batch); "
        "older unrolls are dropped and counted",
    )
    split_ratios: bool = Field(
        default=False,
        description="measure the two parts of each ratio π/μ, implementation gap and drift, also "
        "where no corrector asks for them; it costs a forward pass of each batch",
    )
    as_actors: bool = Field(
        default=False,
        description="round the forward pass as the actors' chain does (int8, fp16, bf16), with the "
        "gradient of the exact one, so that the policy that learns is nearer to the one that acts",
    )
    kept_weights_bytes: Whole = Field(
        default=256 * 1024**2,
        ge=0,
        description="memory for the newest published weights, by which ratios are split, in "
        "bytes; at most max_lag_versions + 1 versions; of steps of older ones all is drift",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.split_ratios:
            yield from self._of_split_ratios(config)
        if self.as_actors:
            yield from self._of_as_actors(config)
        if self.burn_in_steps:
            yield from self._of_burn_in(config)
        yield from self._of_ranks(config, config.ranks)

    def _of_split_ratios(self, config: Any) -> Iterator[str]:
        if config.loss.acting != "sample" or config.loss.source == "replay":
            yield (
                f"trainer.split_ratios: loss.kind {config.loss.kind} learns without importance "
                "ratios; set it to false"
            )
        if not config.acts_compressed:
            yield (
                "trainer.split_ratios: without a compressed policy there is no implementation gap; "
                "set it to false, or compressor.chain to [int8, onnx] or another one"
            )

    def _of_as_actors(self, config: Any) -> Iterator[str]:
        key, chain = "trainer.as_actors", config.compressor.chain
        names = [_link(item) for item in chain]
        if config.loss.acting != "sample" or config.loss.source == "replay":
            yield (
                f"{key}: loss.kind {config.loss.kind} learns without importance ratios, which it "
                "would bring nearer to 1; set it to false"
            )
        if config.compressor.ladder:
            yield (
                f"{key}: it rounds as compressor.chain does, and compressor.ladder has several; "
                "give compressor.chain alone, or set this to false"
            )
        elif not {*names} & _ROUNDING:
            yield (
                f"{key}: nothing in compressor.chain rounds; set that to [int8, onnx], or this to "
                "false"
            )
        elif others := [name for name in names if name not in _ROUNDING | _SAME_NETWORK]:
            yield (
                f"{key}: {', '.join(others)} in compressor.chain changes the network, and the "
                "trainer only rounds; remove it there, or set this to false"
            )
        elif "fuse" in names and {*names} & _HALVES:
            yield (
                f"{key}: fuse scales weights before {', '.join(sorted({*names} & _HALVES))} rounds "
                "them, and the trainer rounds the unscaled ones; remove fuse from compressor.chain"
            )
        if config.policy.is_users:
            yield (
                f"{key}: the trainer cannot round within policy.architecture "
                f"{config.policy.architecture}, a module of your own; set this to false"
            )
        if self.compile:
            yield f"{key}: it is not compiled; set trainer.compile to false"

    def _of_burn_in(self, config: Any) -> Iterator[str]:
        if config.policy.memory.kind is None and not config.policy.is_users:
            yield (
                "trainer.burn_in_steps: the policy has no memory; remove it, or set "
                "policy.memory.kind to lstm"
            )
        if self.burn_in_steps >= config.actors.unroll_length:
            yield (
                f"trainer.burn_in_steps: nothing of an unroll of {config.actors.unroll_length} "
                "steps would be learned; set actors.unroll_length to more than "
                f"{self.burn_in_steps}, or this to less than {config.actors.unroll_length}"
            )

    def _of_ranks(self, config: Any, ranks: int) -> Iterator[str]:
        resident = config.resident.envs is not None
        if resident and self.processes > 1:
            yield (
                "trainer.processes: with resident.envs the trainer's devices are counted; set "
                f"resident.devices to {self.processes} instead, and this to 1"
            )
        if ranks == 1:
            if self.average_every is not None:
                yield (
                    "trainer.average_every: one trainer has nothing to average; set "
                    "trainer.processes to 2 or more, or this to null"
                )
            return
        key = "resident.devices" if resident else "trainer.processes"
        if self.workers > 1:
            yield (
                f"trainer.workers: {self.workers} workers apply gradients in the order in which "
                f"they end, which differs between {ranks} ranks; set it to 1, and {key} to as many "
                "as the cores bear"
            )
        if config.tuner.enabled and set(config.tuner.counts) != {"predictors"}:
            local = config.actors.inference == "local"
            way = "tuner.enabled to false" if local else "it to [predictors]"
            yield (
                f"tuner.counts: {ranks} ranks have one worker each, and need actors of their own; "
                f"set {way}, or {key} to 1"
            )
        if not resident and config.actors.processes < ranks:
            yield (
                f"trainer.processes: each of {ranks} trainers waits for unrolls of its own actors, "
                f"and there are {config.actors.processes}; set actors.processes to {ranks} or more"
            )


class ReplayConfig(Group):
    """The replay memory of an algorithm that learns each step many times."""

    size: Whole = Field(
        default=100_000,
        ge=1,
        le=2**31,
        description="newest agent steps of all environments that are kept",
    )
    max_bytes: Whole = Field(
        default=4 * 1024**3,
        ge=1024 * 1024,
        description="memory on the device of the trainer, in bytes; the smaller bound holds",
    )
    start: Whole = Field(
        default=1000, ge=1, le=2**31, description="new agent steps before the first batch"
    )
    batch: Whole = Field(default=64, ge=1, le=2**20, description="size of a batch, in agent steps")
    ratio: float = Field(
        default=8.0,
        gt=0.0,
        le=1e6,
        description="agent steps drawn for each new one: the trainer waits for new steps, and "
        "actors for the trainer",
    )
    n_steps: Whole = Field(
        default=1,
        ge=1,
        le=1024,
        description="rewards before the value that a target is made of; fewer before the end of an "
        "episode or unroll",
    )
    prioritised: bool = Field(
        default=False,
        description="draw steps in proportion to their last error instead of all alike, and weight "
        "the loss against that",
    )
    priority_exponent: float = Field(
        default=0.6, gt=0.0, le=1.0, description="prioritised: α, exponent of the errors"
    )
    importance_exponent: float = Field(
        default=0.4,
        ge=0.0,
        le=1.0,
        description="prioritised: β, exponent of the weights; 1: no bias",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if config.loss.source != "replay":
            way_out = "loss.kind to dqn, or with Box actions to sac"
            if "memory" in type(config.loss).model_fields:
                way_out = "loss.memory to replay"
            for key in self.changed(*type(self).model_fields):
                yield (
                    f"replay.{key}: loss.kind {config.loss.kind} has no replay memory; remove it, "
                    f"or set {way_out}"
                )
            return
        actors, trainer = config.actors, config.trainer
        at_once = trainer.unrolls_per_batch * actors.envs_per_group
        if config.resident.envs is not None:
            at_once = config.resident.envs
        at_once *= actors.unroll_length
        if self.size < max(at_once, self.start):
            why = f"{at_once} new steps come at a time, and replay.start is {self.start}"
            yield f"replay.size: {why}; set it to {max(at_once, self.start)}"
        if self.n_steps > actors.unroll_length:
            yield (
                "replay.n_steps: a target reaches no further than its unroll; set it to "
                f"{actors.unroll_length}, or actors.unroll_length to {self.n_steps}"
            )
        for key in trainer.changed("minibatches", "epochs"):
            yield f"trainer.{key}: replay.ratio says how often a step is learned; set this to 1"

    @override
    def doubts(self, config: Any) -> Iterator[str]:
        if not self.prioritised:
            for key in self.changed("priority_exponent", "importance_exponent"):
                yield (
                    f"replay.{key}: it has no effect without priorities; remove it, or set "
                    "replay.prioritised to true"
                )


class OptimiserConfig(Group):
    """The gradient step."""

    kind: Literal["adam", "rmsprop", "rmsprop_tf"] = Field(
        default="adam",
        description="optimiser; rmsprop_tf is TensorFlow's (epsilon under the root, mean square "
        "from rmsprop_initial), which GA3C and IMPALA used; the default depends on loss.kind",
    )
    learning_rate: float = Field(
        default=3e-4,
        gt=0.0,
        le=MOST_LEARNING_RATE,
        description="initial step size, per update; the default depends on loss.kind",
    )
    schedule: Literal["constant", "linear"] = Field(
        default="constant",
        description="learning rate over time; linear falls to 0 over schedule_steps",
    )
    schedule_steps: Whole | None = Field(
        default=None,
        ge=1,
        description="length of the linear schedule, in learned agent steps",
    )
    adam_beta1: float = Field(
        default=0.9, ge=0.0, lt=1.0, description="decay of Adam's mean gradient"
    )
    adam_beta2: float = Field(
        default=0.999, ge=0.0, lt=1.0, description="decay of Adam's mean square"
    )
    epsilon: float = Field(
        default=1e-5,
        gt=0.0,
        le=1.0,
        description="added to the root mean square in the denominator; with rmsprop_tf to the "
        "mean square, where a paper's value for a loss that is the sum of n steps is divided by n²",
    )
    rmsprop_alpha: float = Field(
        default=0.99, ge=0.0, lt=1.0, description="decay of RMSProp's mean square"
    )
    rmsprop_initial: float = Field(
        default=1.0,
        gt=0.0,
        description="rmsprop_tf: first mean square, which makes the first steps small if it is "
        "above that of the gradients; these are of the mean loss of a step, so a paper's value for "
        "a loss that is the sum of n steps is divided by n²",
    )
    max_grad_norm: float = Field(
        default=0.5,
        ge=0.0,
        description="largest Euclidean norm of the gradient; 0: no bound; the default depends on "
        "loss.kind",
    )

    def rate_after(self, learned_steps: int) -> float:
        """The learning rate after `learned_steps` agent steps.

        `constant` stays; `linear` falls to 0 at `schedule_steps` and stays there.
        """
        return self.learning_rate * max(0.0, float(self.share_left(learned_steps)))

    def share_left(self, learned_steps: Any) -> Any:
        """The share of the learning rate after so many steps; at the end 0 or less."""
        if self.schedule == "constant" or self.schedule_steps is None:
            return 1.0
        return 1.0 - learned_steps / self.schedule_steps

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.schedule == "linear" and self.schedule_steps is None:
            yield (
                "optimiser.schedule_steps: a linear schedule needs its length in learned agent "
                "steps, for instance 10_000_000; or set optimiser.schedule to constant"
            )

    @override
    def doubts(self, config: Any) -> Iterator[str]:
        most = config.run.max_env_steps
        if self.schedule == "linear" and most and most > (self.schedule_steps or most):
            yield (
                f"optimiser.schedule_steps: the rate is 0 after {self.schedule_steps} of "
                f"run.max_env_steps: {most}, so that nothing is learned of the rest; set it to "
                f"{most}"
            )
        if self.schedule == "constant" and self.schedule_steps is not None:
            yield (
                "optimiser.schedule_steps: it has no effect while optimiser.schedule is constant; "
                "set that to linear, or this to null"
            )
