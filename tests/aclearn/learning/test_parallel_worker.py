"""A worker of several threads makes the update of one thread."""

from __future__ import annotations

import pytest
import torch

from aclearn.config import CorrectorConfig
from aclearn.learning import make_objective, parallel_worker


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("correctors", [None, ["vtrace", "second_moment"]])
def test_several_threads_make_the_update_of_one(
    make, threads: int, correctors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel_worker, "_LEAST_SAMPLES", 1)
    batch = make.batch(make.flat, 7, 5, 3)
    options = {}
    if correctors is not None:  # of which one looks at all steps together
        given = [CorrectorConfig.model_validate(each) for each in correctors]
        options["objective"] = make_objective(make.loss, given)
    learners = [make.learner(make.flat, **options) for _ in range(2)]
    workers = [learners[0].make_worker(), learners[1].make_worker(threads)]
    for _ in range(2):  # the second update begins from equal weights
        single, several = (
            make.update(learner, batch, worker=worker)
            for learner, worker in zip(learners, workers, strict=True)
        )
        gradients = [make.gradient(learner) for learner in learners]
        assert gradients[0].abs().max() > 1e-3
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
        assert several.metrics == pytest.approx(dict(single.metrics), rel=1e-4, abs=1e-6)
    workers[1].close()
