"""`check_corrector`: tests the contract of a corrector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from correctors.chain import Correction, CorrectionInput, Corrector, CorrectorChain

_ACTIONS = 3
#: Fields of an input that every batch has.
_ALWAYS = frozenset({"values", "next_values", "rewards", "discounts", "done"})


def check_corrector(corrector: Corrector) -> None:
    """Run a corrector of your own on small random batches and check the contract of `Corrector`.

    Raises:
        AssertionError: the corrector breaks the contract; says what was expected.
    """
    name = type(corrector).__name__
    _require(isinstance(corrector, Corrector), f"{name}: expected `needs` and `correct`")
    try:
        CorrectorChain().add(corrector)
    except ValueError as error:
        raise AssertionError(str(error)) from error
    for shape in ((7, 4), (1, 3)):
        batch = _random_batch(shape, corrector.needs)
        _check_result(corrector, batch)
        _check_columns(corrector, batch)
    batch = _random_batch((7, 4), corrector.needs)
    _check_unread(corrector, batch)
    _check_reset(corrector, batch)
    for extreme in (1e4, -1e4, -torch.inf):
        changes: dict[str, Any] = {}
        for field, value in (("log_rhos", extreme), ("log_pi", min(extreme, 0.0))):
            if field in corrector.needs:
                changes[field] = batch.required(field).clone()
                changes[field][2] = value
        for part, tensor in _parts(_corrected(corrector, replace(batch, **changes))):
            _require(
                bool(tensor.isfinite().all()),
                f"{name}: {part}: not finite where log_rhos is {extreme}; clamp it before exp",
            )


def _corrected(
    corrector: Corrector, batch: CorrectionInput, whole: CorrectionInput | None = None
) -> Correction:
    """What it makes of `batch`, a part of the update's batch `whole`; None: the whole itself."""
    chain = CorrectorChain((corrector,))
    try:
        return chain.correct(batch, chain.measure_whole(batch if whole is None else whole))
    except Exception as error:
        # whatever the user's own code raises
        raise AssertionError(
            f"{type(corrector).__name__}: correct raised {error!r}; a field that `needs` does not "
            "name may be None"
        ) from error


def _check_result(corrector: Corrector, batch: CorrectionInput) -> None:
    name = type(corrector).__name__
    before = {key: tensor.detach().clone() for key, tensor in _tensors(batch)}
    first, again = _corrected(corrector, batch), _corrected(corrector, batch)
    for key, tensor in _tensors(batch):
        _require(
            torch.equal(tensor, before[key]), f"{name}: correct changed {key} of its input in place"
        )
    shape = tuple(batch.rewards.shape)
    for key, metric in first.metrics.items():
        _require(
            isinstance(metric, Tensor) and tuple(metric.shape) == shape,
            f"{name}: metrics[{key!r}]: expected a tensor of shape {shape}, a number for each step",
        )
    for part, tensor in _parts(first):
        _require(bool(tensor.isfinite().all()), f"{name}: {part}: expected finite numbers")
        _require(
            part.startswith("metrics") or not tensor.requires_grad,
            f"{name}: {part} carries gradient; use torch.no_grad()",
        )
    _require_same(first, again, f"{name}: two calls with one input gave different {{}}")
    scaled = replace(
        CorrectorChain().correct(batch),
        weights=torch.full_like(batch.rewards, 0.5),
        metrics={"of_another": torch.ones_like(batch.rewards)},
    )
    given = {part: tensor.clone() for part, tensor in _parts(scaled)}
    [measured] = CorrectorChain((corrector,)).measure_whole(batch)
    result = corrector.correct(replace(batch, measured=measured), scaled)
    for part, tensor in _parts(scaled):
        _require(
            torch.equal(tensor, given[part]),
            f"{name}: correct changed {part} of the correction that it was given in place",
        )
    _require(
        "of_another" in result.metrics,
        f"{name}: correct dropped the metrics of correctors before it; extend correction.metrics",
    )
    _require(
        torch.allclose(result.weights, 0.5 * first.weights),
        f"{name}: weights: expected those it was given times its own, so that correctors may stand "
        "in any order",
    )


def _check_columns(corrector: Corrector, batch: CorrectionInput) -> None:
    columns = slice(1, 3)
    changes: dict[str, Any] = {key: tensor[:, columns] for key, tensor in _tensors(batch)}
    _require_same(
        _corrected(corrector, replace(batch, **changes), batch),
        _corrected(corrector, batch).columns(columns),
        f"{type(corrector).__name__}: {{}} of an environment depend on other environments, but the "
        "trainer corrects a batch in parts",
    )


def _check_unread(corrector: Corrector, batch: CorrectionInput) -> None:
    """What a terminated step reached does not exist."""
    terminated = batch.discounts == 0.0
    changes: dict[str, Any] = {
        key: tensor.masked_fill(
            terminated if tensor.ndim == 2 else terminated.unsqueeze(2), torch.nan
        )
        for key, tensor in _tensors(batch)
        if key in ("next_values", "q_next", "next_target_probs")
    }
    _require_same(
        _corrected(corrector, replace(batch, **changes)),
        _corrected(corrector, batch),
        f"{type(corrector).__name__}: {{}} depend on the next observation of a terminated step; "
        "use `where` or masked_fill, since 0 × NaN is NaN",
    )


def _check_reset(corrector: Corrector, batch: CorrectionInput) -> None:
    """The step behind a done one belongs to no episode."""
    after = torch.zeros_like(batch.done)
    after[1:] = batch.done[:-1]
    changes: dict[str, Any] = {
        key: tensor.masked_fill(after if tensor.ndim == 2 else after.unsqueeze(2), torch.nan)
        for key, tensor in _tensors(batch)
        if tensor.is_floating_point()
    }
    if batch.valid is not None:  # a reset does not count
        changes["valid"] = batch.valid & ~after
        batch = replace(batch, valid=changes["valid"])
    kept = ~after
    spoilt = dict(_parts(_corrected(corrector, replace(batch, **changes))))
    for part, tensor in _parts(_corrected(corrector, batch)):
        _require(
            torch.equal(spoilt[part][kept], tensor[kept]),
            f"{type(corrector).__name__}: {part} depend on the step behind a done one, which "
            "belongs to no episode; cut the trace where `done` is set",
        )


def _require(kept: bool, breach: str) -> None:
    if not kept:  # not by `assert`, which `python -O` takes out
        raise AssertionError(breach)


def _require_same(one: Correction, other: Correction, breach: str) -> None:
    parts = dict(_parts(other))
    for part, tensor in _parts(one):
        _require(part in parts and torch.allclose(tensor, parts[part]), breach.format(part))


def _parts(correction: Correction) -> Iterator[tuple[str, Tensor]]:
    for part in ("targets", "advantages", "weights"):
        yield part, getattr(correction, part)
    if correction.kept is not None:
        yield "kept", correction.kept.float()
    for name, tensor in correction.metrics.items():
        yield f"metrics[{name!r}]", tensor


def _tensors(batch: CorrectionInput) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in vars(batch).items() if tensor is not None)


def _random_batch(shape: tuple[int, int], needs: frozenset[str]) -> CorrectionInput:
    """Several episodes, some terminated and some truncated, with the fields in `needs`."""
    generator = torch.Generator().manual_seed(0)

    def normal(*more: int) -> Tensor:
        return torch.randn(*shape, *more, generator=generator).requires_grad_()

    ends = torch.rand(shape, generator=generator)
    terminated, truncated = ends < 0.2, ends > 0.8
    made = {
        "values": normal(),
        "next_values": normal(),
        "rewards": normal().detach(),
        "discounts": 0.9 * (~terminated).float(),
        "done": terminated | truncated,
        "log_rhos": normal(),
        "log_pi": -normal().abs(),
        "kl": normal().abs(),
        "behaviour_parameters": normal(_ACTIONS).detach(),
        "behaviour_probs": torch.rand(shape, generator=generator),
        "log_gaps": normal(),
        "valid": torch.rand(shape, generator=generator) < 0.9,
        "actions": torch.randint(_ACTIONS, shape, generator=generator),
        "q_next": normal(_ACTIONS),
        "next_target_probs": normal(_ACTIONS).softmax(2),
    }
    return CorrectionInput(**{name: made[name] for name in made if name in needs | _ALWAYS})
