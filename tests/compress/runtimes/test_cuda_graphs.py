"""CUDA graph runners: padding, captured steps, weights that change in place, threads, closing."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from aclearn.policies import Convolution, build_architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.types import ObservationSpec
from compress import RefusedTensors
from compress.graphs.graph_network import OneStep
from compress.runtimes.cuda_graphs import CudaGraphRunnerPool, batch_sizes, padded_size
from compress.runtimes.cuda_runtime import CudaGraphRuntime
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.acting import Acting, parameters_of
from tests.support.random_policies import some_observations, some_tensors
from tests.support.waiting import DEADLINE_S

IMAGES = build_architecture(
    "tiny", ObservationSpec.plain((2, 8, 8), "uint8"), 3, (Convolution(4, 4, 2),), (6,)
)
FLAT = build_architecture(
    "flat", ObservationSpec.plain((3,), "float32"), 4, (), (5,), "tanh", separate_value=True
)
CPU = torch.device("cpu")


class Recording(TorchDispatchMode):
    """Records every operation with the memory that it reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        # aliases: the present memory, even if its tensors are changed later
        noted = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs or {}, result))
        self.operations.append((function, *noted))
        return result

    def replay(self) -> None:
        """Replay as a CUDA graph: the same operations on the same memory, without Python code."""
        for function, args, kwargs, result in self.operations:
            again = function(*args, **kwargs)
            for new, old in zip(tree_leaves(again), tree_leaves(result), strict=True):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class CpuStream:
    """Stands in for a CUDA stream: its captures only refer to memory, as a CUDA graph does."""

    device = CPU

    def __init__(self, *, capturable=lambda: True) -> None:
        self._capturable = capturable
        self.captured = self.replayed = self.waits = 0

    def scope(self):
        return contextlib.nullcontext()

    def host_memory(self, shape, dtype):
        return torch.full(shape, 99, dtype=dtype)

    def capture(self, step, generators=()):
        if not self._capturable():
            raise RuntimeError("operation not permitted when stream is capturing")
        self.captured += 1
        with Recording() as recording:
            step()

        def replay() -> None:
            self.replayed += 1
            recording.replay()

        return replay

    def wait(self) -> None:
        self.waits += 1


class Policy:
    """A policy of captured steps on the CPU and its streams."""

    def __init__(self, architecture=IMAGES, **options) -> None:
        self.streams: list[CpuStream] = []
        self._options = options
        runtime = CudaGraphRuntime(architecture, self._stream, device=CPU, max_batch=8)
        self.runtime = Acting(runtime)

    def _stream(self) -> CpuStream:
        self.streams.append(CpuStream(**self._options))
        return self.streams[-1]


def _on_gpu(architecture=IMAGES, amp_dtype=None) -> Acting:
    device = torch.device("cuda")
    runtime = CudaGraphRuntime(
        architecture, lambda: CudaStream(device), device=device, max_batch=8, amp_dtype=amp_dtype
    )
    return Acting(runtime)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=needs_gpu)])
def acting(request):
    """Makes a policy of captured steps of an architecture."""
    if request.param == "stand-in":
        yield lambda architecture: Policy(architecture).runtime
    else:  # convolutions in TF32, the default of newer GPUs, would differ from those of a CPU
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield _on_gpu


def _expected(architecture, seed, observations):
    plain = Acting(TorchRuntime(architecture))
    plain.load(some_tensors(architecture, seed))
    return plain.parameters(observations)


def _assert_close(got, expected) -> None:
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def _assert_acts(policy, seed, count, architecture=IMAGES) -> None:
    observations = some_observations(architecture, count, seed=count)
    found = policy.parameters(observations)
    _assert_close(found, _expected(architecture, seed, observations))


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (9, (1, 2, 4, 8, 9))],
)
def test_batches_are_padded_to_powers_of_two_and_the_largest_batch(most, sizes) -> None:
    assert batch_sizes(most) == sizes
    for count, size in {0: 1, 1: 1, 3: 4, 4: 4, 5: 6, 6: 6, 7: None}.items():
        assert padded_size(count, batch_sizes(6)) == size
    with pytest.raises(ValueError, match="expected at least 1, got 0"):
        batch_sizes(0)


@pytest.mark.parametrize("architecture", [IMAGES, FLAT], ids=["images", "flat"])
def test_every_count_and_version_is_answered_as_on_a_cpu(acting, architecture, caplog) -> None:
    policy = acting(architecture)
    for seed in (1, 2, 3):
        policy.load(some_tensors(architecture, seed))
        # large ones first: their rows are the padding of the smaller ones
        for count in (8, 5, 3, 7, 1, 2, 20):
            _assert_acts(policy, seed, count, architecture)
    assert not caplog.records  # every step was captured


def test_a_step_is_captured_once_for_all_versions_and_an_answer_stays_what_it_was() -> None:
    policy, observations, answers = Policy(), some_observations(IMAGES, 3), []
    for seed in (1, 2, 3):
        policy.runtime.load(some_tensors(IMAGES, seed))
        answers.append(policy.runtime.parameters(observations))
    for seed, answer in zip((1, 2, 3), answers, strict=True):
        _assert_close(answer, _expected(IMAGES, seed, observations))
    policy.runtime.parameters(some_observations(IMAGES, 20))  # more than a captured step holds
    [stream] = policy.streams
    assert (stream.captured, stream.replayed, stream.waits) == (1, 3, 4)


def test_weights_that_lie_on_the_device_act_as_those_that_were_carried_there() -> None:
    policy = Policy().runtime
    for seed in (1, 2):
        there = {name: torch.tensor(tensor) for name, tensor in some_tensors(IMAGES, seed).items()}
        policy.executable = policy.runtime.load_on_device(there)
        _assert_acts(policy, seed, 3)
    there["hidden.0.weight"] = there["hidden.0.weight"].clone()
    there["hidden.0.weight"][2, 3] = float("nan")
    with pytest.raises(RefusedTensors, match=r"not finite: hidden\.0\.weight$"):
        policy.executable = policy.runtime.load_on_device(there)
    _assert_acts(policy, 2, 3)


def test_threads_compute_at_the_same_time_each_with_the_version_that_it_has(acting, caplog) -> None:
    policy, observations = acting(IMAGES), some_observations(IMAGES, 8)
    executables = [policy.load(some_tensors(IMAGES, seed)) for seed in range(3)]
    expected = [_expected(IMAGES, seed, observations) for seed in range(3)]
    at_once = threading.Barrier(4, timeout=DEADLINE_S)

    def work(index: int) -> None:
        at_once.wait()
        for turn in range(50):
            seed, count = (index + turn) % 3, 1 + (index + turn) % 8
            answer = parameters_of(executables[seed], observations[:count])
            _assert_close(answer, expected[seed][:count])
            if index == 0:
                policy.load(some_tensors(IMAGES, 5))  # copies to the device beside the captures

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, index) for index in range(4)]:
            future.result(timeout=DEADLINE_S)
    assert not caplog.records


def test_after_a_capture_that_failed_none_is_tried_and_those_that_there_are_go_on(caplog) -> None:
    works = [True, False]
    policy = Policy(capturable=lambda: works.pop(0))
    policy.runtime.load(some_tensors(IMAGES, 1))
    for count in (2, 4, 8, 2):  # 8 would request a third one, from an empty list
        _assert_acts(policy.runtime, 1, count)
    [stream] = policy.streams
    assert (stream.captured, stream.replayed) == (1, 2)
    [record] = caplog.records  # said once
    said = "event=capture_failed device=cpu what='inference of 4 rows' reason="
    assert record.getMessage().startswith(said)
    assert "not permitted when stream is capturing" in record.getMessage()


def test_an_error_leaves_a_runner_that_goes_on_with_the_right_weights() -> None:
    policy, observations = Policy(), some_observations(IMAGES, 3)
    for seed in (1, 2):
        policy.runtime.load(some_tensors(IMAGES, seed))
        with pytest.raises(TypeError):
            policy.runtime.parameters(observations.astype(np.float64))
        with pytest.raises(ValueError, match=r"expected \[3, \(2, 8, 8\)\], got \(3, 1, 8, 8\)"):
            policy.runtime.parameters(observations[:, :1])
        with pytest.raises(RefusedTensors, match="missing or unknown tensors"):
            policy.runtime.load(some_tensors(FLAT, 2))
        _assert_acts(policy.runtime, seed, 3)
    [stream] = policy.streams
    assert stream.waits == 4  # also after the errors


def test_a_thread_that_finds_all_runners_busy_waits_for_one_and_not_for_ever(monkeypatch) -> None:
    made = []
    runners = CudaGraphRunnerPool(lambda: made.append(object()) or made[-1], most=2)
    monkeypatch.setattr("compress.runtimes.cuda_graphs._RUNNER_WITHIN_S", 0.01)
    with runners.borrow() as first, runners.borrow() as second:
        assert first is not second
        reason = r"no runner became free within 0\.01 s"
        with pytest.raises(TimeoutError, match=reason), runners.borrow():
            pass
    with runners.borrow() as again:
        assert again in made
    assert len(made) == 2


def test_a_runner_that_cannot_be_made_takes_no_room() -> None:
    def fail():
        raise RuntimeError("out of memory")

    runners = CudaGraphRunnerPool(fail, most=1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"), runners.borrow():
            pass


@needs_gpu
def test_bf16_on_a_gpu_is_close_to_fp32_and_captured(caplog) -> None:
    policy = _on_gpu(amp_dtype=torch.bfloat16)
    policy.load(some_tensors(IMAGES, 1))
    observations = some_observations(IMAGES, 5)
    error = np.abs(policy.parameters(observations) - _expected(IMAGES, 1, observations)).max()
    assert 0 < error < 0.1
    assert not caplog.records


@needs_gpu
def test_a_step_that_waits_for_the_device_cannot_be_captured_and_runs_as_it_is(
    monkeypatch, caplog
) -> None:
    forward = OneStep.forward

    def waiting(self, *given):
        logits, *others = forward(self, *given)
        logits.sum().item()  # a wait, which no capture allows
        return logits, *others

    policy, observations = _on_gpu(FLAT), some_observations(FLAT, 3)
    policy.load(some_tensors(FLAT, 1))
    expected = _expected(FLAT, 1, observations)
    monkeypatch.setattr(OneStep, "forward", waiting)
    for _ in range(3):
        _assert_close(policy.parameters(observations), expected)
    [record] = caplog.records
    said = "event=capture_failed device=cuda what='inference of 4 rows'"
    assert record.getMessage().startswith(said)
