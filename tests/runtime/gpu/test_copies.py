"""Copies that overlap with kernels: in every order that CUDA allows, numbers are the same."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.gpu import chunks, result_blocks, staging  # noqa: E402
from runtime.gpu import copies as copies_module  # noqa: E402
from runtime.gpu.copies import Copies  # noqa: E402
from tests.runtime.gpu.fake_cuda import ORDERS, Event, FakeCuda, Stream  # noqa: E402

STEPS = 6


@contextmanager
def fake(monkeypatch, order):
    """A fake device; uploads of 64 bytes and more are large, a ring holds four of them."""
    created = FakeCuda(order)
    with monkeypatch.context() as patch:
        created.patch(patch)
        patch.setattr(copies_module, "LARGE", 64)
        patch.setattr(staging, "SMALLEST", 1024)
        with created:
            yield created


class Step:
    """A step of two kernels over an arena: out = 2 x + scale; x's bytes are overwritten then."""

    def __init__(self, device, count=32):
        self.device, self.copies = device, Copies("cuda:0")
        self.upload, self.download, _, self.downloaded = self.copies.functions
        self.x = torch.empty(count, device="cuda:0")
        self.scale = torch.empty(1, device="cuda:0")
        self.out = torch.empty(count, device="cuda:0")
        self.host = torch.empty(count, pin_memory=True).numpy()

    def launch(self, kernel):
        self.device.current.enqueue("run", kernel)

    def __call__(self, x, scale):
        x_, scale_, out = map(view, (self.x, self.scale, self.out))
        self.upload(self.x, x)
        self.upload(self.scale, scale)
        self.launch(lambda: np.copyto(out, 2 * x_ + scale_))
        self.launch(lambda: x_.fill(-1))
        self.download(self.host, self.out)
        self.launch(lambda: scale_.fill(-1))
        self.downloaded()
        return self.host.copy()


def view(tensor):
    """The numbers of a tensor of the fake device, for its kernels."""
    with torch._C.DisableTorchFunction():
        return tensor.numpy()


def run(monkeypatch, order, count=32):
    """The largest error of some steps, whose feed is overwritten after each."""
    with fake(monkeypatch, order) as device:
        step, x, scale, worst = Step(device, count), np.empty(count, "f4"), np.empty(1, "f4"), 0.0
        for number in range(STEPS):
            x[:], scale[:] = np.arange(count) + number, 100 * number
            actual, wanted = step(x, scale), 2 * x + scale
            worst = max(worst, float(np.abs(actual - wanted).max()))
            x[:], scale[:] = -5, -5
        return worst


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 32, 1000])
def test_numbers_are_right_in_every_order(monkeypatch, order, count):
    assert run(monkeypatch, order, count) == 0


def queued(monkeypatch, order, steps=20):
    """The largest error of steps whose results are read at the end: the host runs far ahead."""
    with fake(monkeypatch, order) as device:
        step = Step(device)
        kept = [torch.empty(32, pin_memory=True).numpy() for _ in range(steps)]
        for number, step.host in enumerate(kept):
            monkeypatch.setattr(step, "downloaded", lambda: None)
            step(np.full(32, number, "f4"), np.full(1, number, "f4"))
        step.copies.downloaded()
        wanted = [np.full(32, 3 * number) for number in range(steps)]
        return float(np.nan_to_num(np.abs(np.subtract(kept, wanted)), nan=1e9).max())


def fetched(monkeypatch, order, count=32, blocks=True):
    """The largest error of results of some steps, half of which are kept to the end."""
    with fake(monkeypatch, order) as device:
        monkeypatch.setattr(chunks, "OVERLAPPED", 64)
        step, kept, worst = Step(device, count), [], 0.0
        if not blocks:
            step.copies._blocks = SimpleNamespace(take=lambda nbytes: None)
        for number in range(2 * STEPS):
            step.upload(step.x, np.full(count, number, "f4"))
            x, out = view(step.x), view(step.out)
            step.launch(lambda x=x, out=out: np.copyto(out, 2 * x))
            fetch = step.copies.fetch(step.host, step.out)
            step.launch(lambda out=out: out.fill(-1))
            result = fetch.array()
            worst = max(worst, float(np.abs(result - 2 * number).max()))
            del fetch
            kept += [(number, result[: count // 2])] * (number % 2)
            del result
            device.default.synchronize()
        errors = [float(np.abs(part - 2 * number).max(initial=0)) for number, part in kept]
        return float(np.nan_to_num(max(worst, *errors), nan=1e9))


def fetched_in_chunks(monkeypatch, order):
    return fetched(monkeypatch, order, blocks=False)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 32, 1000])
@pytest.mark.parametrize("blocks", [True, False])
def test_results_never_change(monkeypatch, order, count, blocks):
    assert fetched(monkeypatch, order, count, blocks) == 0


def test_a_block_that_returns_too_early_is_seen(monkeypatch):
    def at_once(array, function, *given):
        function(*given)
        return SimpleNamespace()

    monkeypatch.setattr(result_blocks, "finalize", at_once)
    assert fails(fetched, monkeypatch)


@pytest.mark.parametrize("order", ORDERS)
def test_the_host_may_run_ahead(monkeypatch, order):
    assert queued(monkeypatch, order) == 0


def fails(run, monkeypatch):
    """Whether some order gives other numbers."""
    return any(run(monkeypatch, order) for order in ORDERS)


@pytest.mark.parametrize(
    ("run", "owner", "name"),
    [
        (run, Copies, "downloaded"),
        (fetched, Event, "synchronize"),
        (fetched_in_chunks, Event, "synchronize"),
        (run, Stream, "wait_event"),
        (queued, staging.StagingRing, "_wait_for_oldest"),
        (queued, Stream, "wait_event"),
    ],
)
def test_each_wait_is_needed(monkeypatch, run, owner, name):
    """The fake shows what is wrong without it."""

    def without(self, *given):
        if name == "_wait_for_oldest":
            self._used.popleft()

    monkeypatch.setattr(owner, name, without)
    assert fails(run, monkeypatch)


def test_the_event_of_the_copy_alone_does_not_free_a_slot(monkeypatch):
    """The slot's bytes on the device are read on the step's stream, after the copy to them."""
    release = staging.StagingRing.release

    def early(ring, slot, event):
        copied = Event(ring._stream.fake)
        copied.record(ring._stream)
        release(ring, slot, copied)

    monkeypatch.setattr(staging.StagingRing, "release", early)
    assert fails(queued, monkeypatch)


def test_uploads_overlap_with_the_previous_step(monkeypatch):
    with fake(monkeypatch, "side first") as device:
        step, ran = Step(device), []
        step.upload(step.x, np.zeros(32, "f4"))
        device.default.synchronize()  # the copy stream waits for the allocation of the ring
        step.launch(lambda: ran.append("kernel"))
        step.upload(step.x, np.ones(32, "f4"))
        slot = step.copies._ring._there[256:384].view(torch.float32)
        assert view(slot).tolist() == [1] * 32 and not ran


def first_numbers_of_freed_memory(monkeypatch):
    """What a kernel reads of memory that is freed, and allocated for the ring, before it runs."""
    with fake(monkeypatch, "side first") as device:
        step, old, result = Step(device), torch.empty(256, device="cuda:0"), []
        step.launch(lambda: result.append(memory.bytes[:4].tolist()))
        memory = device.device[-1]
        memory.bytes[:] = 7
        del old
        step.upload(step.x, np.zeros(32, "f4"))
        device.default.synchronize()
        assert device.device[-1] is memory, "the ring is there"
        return result[0]


def test_the_ring_is_written_after_all_who_used_its_memory(monkeypatch):
    assert first_numbers_of_freed_memory(monkeypatch) == [7] * 4
    monkeypatch.setattr(Stream, "wait_stream", lambda self, other: None)
    assert first_numbers_of_freed_memory(monkeypatch) == [0] * 4


def test_one_wait_serves_all_downloads_and_no_kernel_after_them(monkeypatch):
    with fake(monkeypatch, "late") as device:
        step, ran = Step(device), []
        for _ in range(3):
            step.download(step.host, step.out)
        step.launch(lambda: ran.append("update"))
        before = device.forced
        step.downloaded()
        step.downloaded()
        assert device.forced == before + 1 and not ran


def test_a_growing_ring_waits_for_its_copies(monkeypatch):
    with fake(monkeypatch, "late") as device:
        step = Step(device)
        step.upload(step.x, np.ones(32, "f4"))
        step.copies.reserve(4096)
        assert step.copies._ring.nbytes == 8192
        step.upload(step.scale, np.ones(1, "f4"))
        device.default.synchronize()
        assert view(step.x).tolist() == [1] * 32 and view(step.scale) == [1]


def test_arrays_of_other_kinds_are_uploaded(monkeypatch):
    """Read-only, with gaps, of another dtype, of one number for all elements, empty."""
    with fake(monkeypatch, "late") as device:
        step = Step(device)
        fixed = np.arange(32, dtype="f4")
        fixed.flags.writeable = False
        for array in (fixed, np.arange(64, dtype="f4")[::2] / 2, np.arange(32), np.float32(3)):
            step.upload(step.x, np.asarray(array))
            device.default.synchronize()
            np.testing.assert_array_equal(view(step.x), np.broadcast_to(array, 32))
        step.upload(torch.empty(0, device="cuda:0"), np.empty(0, "f4"))


def test_memory_that_is_not_pinned_is_waited_for(monkeypatch):
    with fake(monkeypatch, "late") as device:
        step, out = Step(device), np.zeros(32, "f4")
        step.upload(step.out, np.ones(32, "f4"))
        step.download(out, step.out)
        assert out.tolist() == [1] * 32
