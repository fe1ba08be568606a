"""Low-rank factorisation: a wide layer becomes two narrow ones, W ≈ up · down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from aclearn.config import Group, Whole
from compress.graphs.policy_graph import PolicyGraph
from compress.policy import Context, Policy
from compress.settings import ConfiguredLink

Matrix = NDArray[np.float32]

#: A basis that keeps this much less of ‖W‖² than the last SVD did is computed by an SVD again.
_ENERGY_DROP = 0.01
#: Distance of MᵀM from the identity: largest entry where M counts as orthogonal; 1-norm (a bound
#: of the eigenvalues) within which Newton's steps converge quadratically.
_ORTHOGONAL_WITHIN, _NEARLY_ORTHOGONAL, _MOST_POLAR_STEPS = 1e-5, 0.75, 8


@dataclass
class _Factored:
    """A layer's column space: `basis` [m, rank] is orthonormal, `energy` its share of ‖W‖²."""

    basis: Matrix
    energy: float


@dataclass
class _State:
    """State between versions, for one graph."""

    graph: str
    ranks: dict[str, int]
    age: int = 0
    factored: dict[str, _Factored] = field(default_factory=dict)


class LowRankSettings(Group):
    """Settings of `low_rank`."""

    rank: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        default=0.9,
        description="whole number: rank of all layers; share: of the squared singular values that "
        "each layer keeps",
    )
    layers: Annotated[tuple[str, ...], Strict(False), Field(min_length=1)] | None = Field(
        default=None,
        description="names of layers, one at least; null: all hidden dense layers, "
        "and both products of each cell of a memory",
    )
    convolutions: bool = Field(
        default=False,
        description="factor convolutions too, into `rank` filters and a 1 × 1 convolution",
    )
    decide_every: Annotated[Whole, Field(ge=1)] | None = Field(
        default=200,
        description="versions between choices of ranks that follow from a share; null: choose "
        "once. An untrained layer has no small rank",
    )


class LowRank(ConfiguredLink[LowRankSettings]):
    """Low-rank factorisation of layers, where it saves multiplications.

    W [m, n] ≈ up [m, r] · down [r, n] with orthonormal columns in `up`: the truncated singular
    value decomposition (Eckart & Young 1936). It saves multiplications if r < m·n / (m + n). The
    first version costs an SVD. Later versions take one step of subspace iteration from the last
    basis, or an SVD if that basis keeps noticeably less of W. The basis turns as little as
    possible, so that the ranges of `quantize` stay valid; after an SVD they are calibrated again.
    """

    name = "low_rank"
    model = LowRankSettings

    def __init__(self, *main: Any, **settings: Any) -> None:
        super().__init__(*main, **settings)
        rank = self.settings.rank
        self._rank: int | None = rank if isinstance(rank, int) else None
        self._share: float | None = rank if isinstance(rank, float) else None

    @property
    def id(self) -> str:
        """E.g. "low_rank=64", "low_rank=0.9-convolutions", "low_rank=64-hidden.0"."""
        marks = sorted(self.settings.layers) if self.settings.layers is not None else []
        marks += ["convolutions"] * self.settings.convolutions
        return "-".join([f"low_rank={self.settings.rank:g}", *marks])

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph with factored layers.

        With a share, the ranks are the largest that save multiplications; the weights decide them.
        """
        self.require_fp32(graph)
        self.require_layers(graph)
        if graph.ranks:
            names = ", ".join(name for name, _ in graph.ranks)
            raise self.refuse(f"{names} is factored already; a chain has one low_rank")
        most = self._most(graph)
        ranks = self._paying(most)
        costly = {name: most[name] for name in self.settings.layers or () if name not in ranks}
        if costly or not ranks:
            limits = ", ".join(f"{name} up to {rank}" for name, rank in (costly or most).items())
            raise self.refuse(
                f"two layers of rank {self._rank or 1} would cost no less than the one they "
                f"replace; ranks that pay: {limits}"
            )
        return _with_ranks(graph, ranks)

    def compress(self, policy: Policy, context: Context) -> Policy:
        """The policy with factored layers; layers of the value alone stay as they are.

        A layer that global pruning made too narrow for its rank also stays: its width was unknown
        when the chain was planned.
        """
        state = self._state(policy, self._paying(self._most(policy.graph)), context)
        graph = _with_ranks(policy.graph, state.ranks)
        tensors = dict(policy.tensors)
        for name, rank in graph.ranks:
            weight = np.asarray(tensors.pop(f"{name}.weight"), np.float32)
            matrix = weight.reshape(len(weight), -1)
            basis = self._basis(state, name, matrix, rank, context)
            down = basis.T @ matrix
            tensors[f"{name}.down.weight"] = down.reshape(rank, *weight.shape[1:])
            ones = (1,) * (weight.ndim - 2)
            tensors[f"{name}.up.weight"] = np.ascontiguousarray(basis).reshape(*basis.shape, *ones)
            if f"{name}.bias" in tensors:
                tensors[f"{name}.up.bias"] = tensors.pop(f"{name}.bias")
        return policy.become(graph, tensors)

    def _most(self, graph: PolicyGraph) -> dict[str, int]:
        """The largest ranks that save multiplications, by wanted layer."""
        return {
            name: largest_paying_rank(graph.weight_shapes()[name]) for name in self._wanted(graph)
        }

    def _paying(self, most: dict[str, int]) -> dict[str, int]:
        """The ranks of the layers where they save multiplications."""
        least = self._rank or 1
        return {name: self._rank or rank for name, rank in most.items() if least <= rank}

    def _wanted(self, graph: PolicyGraph) -> list[str]:
        layers = {layer.name: layer for layer in graph.products()}
        if self.settings.layers is not None:
            for name in self.settings.layers:
                if name not in layers:
                    raise self.refuse(
                        f"layers: {name!r} is unknown; expected some of {', '.join(layers)}"
                    )
        wanted = []
        for name, layer in layers.items():
            hidden = name.startswith(("hidden", "memory")) and self.settings.layers is None
            named = self.settings.layers is not None and name in self.settings.layers
            if hidden or named or (layer.kind == "convolution" and self.settings.convolutions):
                wanted.append(name)
        if not wanted:
            raise self.refuse(
                "the policy has no hidden dense layer to factor; name others in layers: "
                f"{', '.join(layers)}"
            )
        return wanted

    def _state(self, policy: Policy, planned: dict[str, int], context: Context) -> _State:
        """Ranks for this graph, decided where they are unknown or due."""
        memory = context.memory(self.state_key)
        digest = policy.graph.digest()
        known: _State | None = memory.get("state")
        if known is None or known.graph != digest:
            known = _State(digest, planned)
            if self._share is not None:
                known.ranks = self._decide(policy, planned)
        elif self._share is not None and known.age == self.settings.decide_every:
            known.ranks, known.age = self._decide(policy, planned), 0
        known.age += 1
        memory["state"] = known
        return known

    def _decide(self, policy: Policy, planned: dict[str, int]) -> dict[str, int]:
        """The ranks that keep the wanted share, where they save multiplications."""
        assert self._share is not None  # a given rank is not decided
        ranks = {}
        for name, largest in planned.items():
            weight = policy.tensors[f"{name}.weight"]
            values = np.linalg.svd(_unit_scaled(weight.reshape(len(weight), -1)), compute_uv=False)
            rank = rank_of_share(values, self._share)
            if rank <= largest:
                ranks[name] = rank
        return ranks

    def _basis(
        self, state: _State, name: str, weight: Matrix, rank: int, context: Context
    ) -> Matrix:
        """An orthonormal basis [m, rank] of most of the weight's column space."""
        last = state.factored.get(name)
        scaled = _unit_scaled(weight)
        if last is not None and last.basis.shape[1] == rank:
            # without it each version would turn the basis towards the singular vectors
            basis = turned_towards(improved_basis(scaled, last.basis), last.basis)
            if kept_energy(scaled, basis) >= last.energy - _ENERGY_DROP:
                last.basis = basis
                return basis
        basis = best_basis(scaled, rank)
        if last is not None and last.basis.shape[1] == rank:
            basis = turned_towards(basis, last.basis)
            context.breaks += 1  # another space: later links measure again
        state.factored[name] = _Factored(basis, kept_energy(scaled, basis))
        return basis


def largest_paying_rank(weight: tuple[int, ...]) -> int:
    """The largest r with m·r + r·n < m·n multiplications; 0 if there is none."""
    rows, columns = weight[0], int(np.prod(weight[1:]))
    return (rows * columns - 1) // (rows + columns)


def rank_of_share(singular_values: NDArray[np.floating[Any]], share: float) -> int:
    """The smallest rank that keeps this share of the squared singular values; 1 if all are 0."""
    energy = np.cumsum(np.asarray(singular_values, np.float64) ** 2)
    return int(np.searchsorted(energy, share * energy[-1])) + 1 if energy[-1] > 0.0 else 1


def best_basis(weight: Matrix, rank: int) -> Matrix:
    """The left singular vectors [m, rank] of the largest singular values."""
    left, _, _ = np.linalg.svd(weight, full_matrices=False)
    return np.asarray(left[:, :rank], np.float32)


def improved_basis(weight: Matrix, basis: Matrix) -> Matrix:
    """One step of subspace iteration, U' = qr(W Wᵀ U), with the signs of U."""
    found, triangle = np.linalg.qr(weight @ (weight.T @ basis))
    signs = np.where(np.diag(triangle) < 0.0, np.float32(-1.0), np.float32(1.0))
    return np.asarray(found * signs, np.float32)


def turned_towards(basis: Matrix, other: Matrix) -> Matrix:
    """The basis of the same space that is nearest to `other` (orthogonal Procrustes)."""
    return np.asarray(basis @ orthogonal_factor(basis.T @ other), np.float32)


def orthogonal_factor(matrix: Matrix) -> Matrix:
    """The orthogonal matrix nearest to a square one: U Vᵀ of its U S Vᵀ.

    Newton-Schulz iteration where it is nearly orthogonal, as between two versions; that is several
    times faster than the SVD.
    """
    identity, found = np.eye(len(matrix), dtype=np.float32), matrix
    for _ in range(_MOST_POLAR_STEPS):
        gram = found.T @ found
        away = np.abs(gram - identity)
        if away.max() < _ORTHOGONAL_WITHIN:
            return found
        if not away.sum(axis=0).max() < _NEARLY_ORTHOGONAL:
            break
        found = found @ (np.float32(1.5) * identity - np.float32(0.5) * gram)
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right, np.float32)


def kept_energy(weight: Matrix, basis: Matrix) -> float:
    """‖Uᵀ W‖² / ‖W‖²; 1 where W is 0."""
    whole = float(np.sum(weight.astype(np.float64) ** 2))
    return float(np.sum((basis.T @ weight).astype(np.float64) ** 2)) / whole if whole else 1.0


def _unit_scaled(weight: NDArray[Any]) -> Matrix:
    """Divided by its largest magnitude, so that squares neither overflow nor vanish."""
    largest = float(np.abs(weight).max(initial=0.0))
    scaled: Matrix = np.asarray(weight, np.float32)
    return scaled / np.float32(largest) if largest > 0.0 else scaled


def _with_ranks(graph: PolicyGraph, ranks: dict[str, int]) -> PolicyGraph:
    return replace(graph, ranks=tuple(sorted(ranks.items())))
