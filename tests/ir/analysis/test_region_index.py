"""The index of regions returns every value that overlaps one, in order, and few others."""

from random import Random

from compiler.ir.analysis.region_index import RegionIndex
from compiler.ir.dims import Dim
from compiler.ir.region import Region, are_disjoint
from compiler.ir.types import DType, TensorType

BYTES = TensorType(DType.FP32, (8,))


def _random_place(random: Random) -> tuple[TensorType, Region]:
    """A region of whole floats: contiguous, or rows of 2 in every 4 or 6; a few of open size."""
    sizes = random.randrange(4), 2
    offset, pitch = 4 * random.randrange(24), random.choice([0, 0, 16, 24])
    if random.random() < 0.1:
        return TensorType(DType.FP32, (Dim.named("N"),)), Region(offset)
    return TensorType(DType.FP32, sizes), Region(offset, 8, pitch) if pitch else Region(offset)


def test_all_that_overlap_are_near() -> None:
    random = Random(0)
    for _ in range(200):
        places = dict(enumerate(_random_place(random) for _ in range(12)))
        index = RegionIndex((key, *place) for key, place in places.items())
        for key in random.sample(range(12), 4):
            index.discard(key)
            del places[key]
        assert [*index] == [*places]
        type, region = _random_place(random)
        near = index.near(type, region)
        assert near == sorted(near)
        overlap = [k for k, place in places.items() if not are_disjoint(type, region, *place)]
        assert {*overlap} <= {*near} <= {*places}


def test_neighbours_are_not_near() -> None:
    """Neither in a row of contiguous parts, nor in columns of one pitch."""
    parts = {n: (BYTES, Region(32 * n)) for n in range(9)}
    columns = {n + 9: (BYTES, Region(300 + 8 * n, 8, 400)) for n in range(9)}
    index = RegionIndex((key, *place) for key, place in (parts | columns).items())
    for key, place in (parts | columns).items():
        assert len(index.near(*place)) <= 3 and key in index.near(*place)


def test_a_value_that_is_added_again_moves() -> None:
    index = RegionIndex([("a", BYTES, Region()), ("b", BYTES, Region(320))])
    index.add("a", BYTES, Region(320))
    assert index.near(BYTES, Region()) == []
    assert index.near(BYTES, Region(320)) == ["b", "a"] == [*index]
