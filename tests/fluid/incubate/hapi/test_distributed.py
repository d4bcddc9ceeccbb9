"""Batches of a process among several: all samples, equally many for each."""

import pytest

from fluid.incubate.hapi.distributed import DistributedBatchSampler


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (10, [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]),
        (7, [[[0, 1], [4, 5]], [[2, 3], [6, 0]]]),
        (1, [[[0]], [[0]]]),
        (0, [[], []]),
    ],
)
def test_processes_share_a_dataset(
    monkeypatch: pytest.MonkeyPatch, count: int, expected: list[list[list[int]]]
) -> None:
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    for rank, batches in enumerate(expected):
        monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
        sampler = DistributedBatchSampler(range(count), 2)
        assert list(sampler) == batches and len(sampler) == len(batches)
        whole = DistributedBatchSampler(range(count), 2, drop_last=True)
        assert list(whole) == [batch for batch in batches if len(batch) == 2]


def test_the_order_depends_on_the_epoch() -> None:
    sampler = DistributedBatchSampler(range(6), 6, shuffle=True)
    (first,), (second,) = sampler, sampler
    assert first == [5, 2, 1, 3, 0, 4] != second and sorted(second) == list(range(6))
    sampler.set_epoch(0)
    assert list(sampler) == [first]
    with pytest.raises(AssertionError, match="batch_size should be a positive integer"):
        DistributedBatchSampler(range(3), 0)
