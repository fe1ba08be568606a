"""The group `compressor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.config._named import Named
from aclearn.types import ActionSpec

#: The default bound of Gaussians: at half a nat an action is still a likely one of both policies.
GAUSSIAN_MAX_KL = 0.5


class _Links:
    """The links of a chain, of which the package `compress` makes what they say."""

    def words(self) -> str:
        return f"list of {Named('compress:LINKS')}, each alone or as `name: setting`"


class CompressorConfig(Group):
    """The processes that compress the acting policy; none without a chain or a ladder."""

    chain: Annotated[list[Any], _Links()] = Field(
        default_factory=list,
        description="links that compress the policy for actors, in order, such as prune: 0.5; "
        "int8, fp16 and bf16 stand for those settings of quantize; ends with its runtime, onnx or "
        "torchscript, else eager torch; empty: no compression; docs/links.md has all settings",
    )
    ladder: list[list[Any]] = Field(
        default_factory=list,
        description="several chains in place of one, from the most compressed to the most "
        "faithful; [] is the uncompressed policy; a run begins with the first, and plug-ins of "
        "the monitor choose among them",
    )
    processes: Whole = Field(
        default=1,
        ge=1,
        le=64,
        description="compressor processes, each with students of its own (`distill` has workers "
        "for one student); actor or predictor i uses compressor i modulo their number",
    )
    every_s: float = Field(
        default=0.2,
        ge=0.0,
        le=3600.0,
        description="least time between the starts of two compressions, in seconds",
    )
    cpu_share: float = Field(
        default=0.25,
        gt=0.0,
        le=64.0,
        description="largest mean use of the CPU by a compressor, in cores; more than 1 "
        "serves `distill: {workers: …}`",
    )
    observations: Whole = Field(
        default=512,
        ge=1,
        le=100_000,
        description="recently visited observations that a compressor keeps, for links to measure "
        "and train on",
    )
    observations_every_s: float = Field(
        default=2.0,
        gt=0.0,
        le=3600.0,
        description="time between two requests for a quarter of them and of "
        "fidelity_observations, 512 at most, in seconds",
    )
    fidelity_observations: Whole = Field(
        default=1024,
        ge=0,
        le=100_000,
        description="further observations, which no link uses, to compare an artifact with its "
        "policy; the largest KL is over all of them; 0 compares nothing, and excludes max_kl",
    )
    fidelity_every: Whole = Field(
        default=32,
        ge=1,
        le=1_000_000,
        description="artifacts over which a comparison is spread: one version is compared on a "
        "part of the observations with each of them",
    )
    max_kl: Annotated[float, Field(gt=0.0)] | Literal["auto"] | None = Field(
        default="auto",
        description="largest mean KL divergence from the policy to an artifact, in nats, each "
        f"compared on 32 observations; beyond it the uncompressed policy is published; auto: "
        f"{GAUSSIAN_MAX_KL:g} where actions are numbers, whose Gaussian may be narrow, else no "
        "bound; null: no bound",
    )
    min_action_prob: float = Field(
        default=0.0,
        ge=0.0,
        lt=0.5,
        description="least probability of each allowed action of a compressed policy; an action "
        "of probability zero could never be learned",
    )

    def kl_bound(self, actions: ActionSpec) -> float | None:
        """Largest mean KL divergence of an artifact of a policy with these actions; None: any."""
        if self.max_kl != "auto":
            return self.max_kl
        return GAUSSIAN_MAX_KL if actions.numbers and self.fidelity_observations else None

    @property
    def rungs(self) -> list[list[Any]]:
        """The ladder of chains; that of `chain` has two rungs; empty: no compression."""
        return self.ladder or ([self.chain, []] if self.chain else [])

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if self.max_kl not in ("auto", None) and self.fidelity_observations == 0:
            yield (
                f"compressor.max_kl: {self.max_kl} nats cannot be checked, since "
                "compressor.fidelity_observations is 0; set that to 32 or so, or max_kl to null"
            )
        ladder = self.ladder
        if ladder and self.chain:
            yield "compressor.ladder: its chains replace compressor.chain; remove one of them"
        if len(ladder) == 1:
            yield (
                "compressor.ladder: one chain leaves nothing to choose; add a more faithful one, "
                "such as [], or set compressor.chain instead"
            )
        for rung, chain in enumerate(ladder):
            if (first := ladder.index(chain)) < rung:
                yield f"compressor.ladder: rung {rung} has the chain of rung {first}; remove one"
            if not chain and rung < len(ladder) - 1:
                yield (
                    f"compressor.ladder: rung {rung} is the uncompressed policy, the most "
                    "faithful one; put it last"
                )
