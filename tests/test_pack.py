"""Packing: small cases worked by hand, what must hold for any lives, and how the work grows."""

import csv
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.pack import Lifetime, PackError, Packing, Stack, check, greedy, lower_bound, pack
from compiler.pack.greedy import Cover, Occupancy
from compiler.pack.life import blocks_of, height_of

DATA = Path(__file__).parents[1] / "bench" / "data"
CAPACITY = 1_048_576
DENSENET = DATA / "buffers" / "infer_densenet121.csv"

LIVES = st.lists(
    st.builds(
        lambda start, steps, size: Lifetime(start, start + steps, size),
        st.integers(-5, 20),
        st.integers(1, 12),
        st.integers(0, 300),
    ),
    max_size=40,
)
ALIGNS = st.sampled_from([1, 16, 64, 100])

# Three lives of 3 bytes share steps 2 and 3. Taken by size, the one of 4 bytes lies at 0 and
# pushes one of them to 4, the other two no longer fit below it, and the arena is 10 bytes high.
SIZE_MISLEADS = [Lifetime(0, 4, 3), Lifetime(1, 4, 3), Lifetime(5, 8, 4), Lifetime(2, 6, 3)]
# No order that greedy begins with reaches 3 bytes; laying what stands out earlier does.
ORDERS_MISLEAD = [Lifetime(3, 6, 2), Lifetime(0, 1, 2), Lifetime(1, 4, 1), Lifetime(0, 2, 1)]

# Found by trying many: at each step at most 10 bytes are alive, and no packing is below 11.
ABOVE_THE_BOUND = [
    Lifetime(2, 6, 3), Lifetime(6, 9, 4), Lifetime(1, 3, 4), Lifetime(0, 2, 1), Lifetime(3, 6, 3), Lifetime(5, 8, 4),
    Lifetime(2, 4, 3), Lifetime(1, 2, 4),
]  # fmt: skip


def read_lives(path: Path) -> list[Lifetime]:
    """Read `id,lower,upper,size` rows."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return [Lifetime(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]


def plain_best_fit(lives: Sequence[Lifetime], order: Sequence[int]) -> list[int]:
    """Lay lives in this order, each in the tightest gap, by looking at all laid before it."""
    offsets: dict[int, int] = {}
    for index in order:
        life = lives[index]
        gaps, floor = [], 0
        for offset, laid in sorted((offset, laid) for laid, offset in offsets.items()):
            other = lives[laid]
            if other.start < life.stop and life.start < other.stop:
                gaps += [(offset - floor, floor)] if offset - floor >= life.size else []
                floor = max(floor, offset + other.size)
        offsets[index] = min(gaps)[1] if gaps else floor
    return [offsets[index] for index in range(len(lives))]


def laid(lives: Sequence[Lifetime], tries: int, align: int = 1) -> int:
    """How high greedy packing alone comes."""
    blocks = blocks_of(lives, align)
    return height_of(blocks, greedy.greedy(blocks, 0, tries))


def live_sum(lives: Sequence[Lifetime], step: int) -> int:
    return sum(life.size for life in lives if life.start <= step < life.stop)


class Counter(Occupancy):
    """An occupancy that counts what is asked of all of its kind."""

    tries = placements = looks = 0

    def __init__(self) -> None:
        super().__init__()
        Counter.tries += 1

    def taken(self, cover: Cover) -> list[tuple[int, int]]:
        ranges = super().taken(cover)
        Counter.placements += 1
        Counter.looks += len(ranges)
        return ranges


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    """Give a counter at zero, and let greedy packing use it."""
    monkeypatch.setattr(greedy, "Occupancy", Counter)
    Counter.tries = Counter.placements = Counter.looks = 0
    return Counter


# Worked by hand


def test_nothing_needs_nothing() -> None:
    assert pack([]) == Packing((), 0, 0)
    assert pack([]).ratio == 1.0
    assert lower_bound([]) == 0


def test_empty_buffers_are_legal() -> None:
    lives = [Lifetime(0, 9, 0), Lifetime(0, 2, 64), Lifetime(1, 3, 0)]
    assert pack(lives) == Packing((0, 0, 0), 64, 64)
    check(lives, pack(lives))
    assert pack(lives[:1]).height == 0


def test_one_byte_takes_a_whole_alignment() -> None:
    lives = [Lifetime(0, 1, 1), Lifetime(0, 1, 65)]
    assert lower_bound(lives) == 192
    assert sorted(pack(lives).offsets) in ([0, 64], [0, 128])


def test_a_lifetime_passes_its_bytes_to_one_that_begins_where_it_stops() -> None:
    lives = [Lifetime(step, step + 1, 64) for step in range(5)]
    assert pack(lives) == Packing((0,) * 5, 64, 64)


def test_a_chain_takes_turns() -> None:
    lives = [Lifetime(step, step + 2, 64) for step in range(6)]
    assert pack(lives) == Packing((0, 64, 0, 64, 0, 64), 128, 128)


def test_where_size_alone_misleads_pressure_does_not() -> None:
    by_size = sorted(range(4), key=lambda i: (-SIZE_MISLEADS[i].size, -i))
    offsets = plain_best_fit(SIZE_MISLEADS, by_size)
    assert max(at + life.size for at, life in zip(offsets, SIZE_MISLEADS, strict=True)) == 10
    assert pack(SIZE_MISLEADS, align=1).height == lower_bound(SIZE_MISLEADS, align=1) == 9


def test_values_of_one_step_are_not_compared_in_pairs() -> None:
    lives = [Lifetime(1, 2, 64)] * 20_000
    assert pack(lives, 64).height == 64 * len(lives)


def test_overhanging_blocks_are_placed_first() -> None:
    assert laid(ORDERS_MISLEAD, tries=len(greedy.ORDERS)) == 4
    assert laid(ORDERS_MISLEAD, tries=8) == lower_bound(ORDERS_MISLEAD, align=1) == 3


@pytest.mark.parametrize("path", sorted(DATA.glob("buffers/*.csv")), ids=lambda path: path.stem)
def test_networks_reach_the_bound(path: Path) -> None:
    lives = read_lives(path)
    packing = pack(lives)
    check(lives, packing)
    assert packing.ratio == 1.0


# What holds for any lives


@given(LIVES, ALIGNS)
def test_packing_keeps_the_rules(lives: list[Lifetime], align: int) -> None:
    packing = pack(lives, align)
    check(lives, packing, align)
    rounded = [Lifetime(life.start, life.stop, -(-life.size // align) * align) for life in lives]
    assert packing.bound == max((live_sum(rounded, life.start) for life in lives), default=0)
    assert packing.bound == lower_bound(lives, align)
    assert packing.bound <= packing.height <= sum(life.size for life in rounded)
    assert all(offset % align == 0 for offset in packing.offsets)


@given(LIVES)
def test_the_same_lives_give_the_same_packing(lives: list[Lifetime]) -> None:
    assert pack(lives) == pack(tuple(lives))


@given(LIVES, st.integers(0, 300), st.integers(1, 300))
def test_more_effort_is_never_worse(lives: list[Lifetime], effort: int, more: int) -> None:
    assert pack(lives, 1, effort + more).height <= pack(lives, 1, effort).height


@given(LIVES)
def test_searching_is_never_worse_than_greed(lives: list[Lifetime]) -> None:
    assert pack(lives, 1, 200).height <= laid(lives, greedy.TRIES)


def lowest(lives: Sequence[Lifetime]) -> int:
    """The height of the best packing: every order in which lives may be put on each other."""
    best = sum(life.size for life in lives)

    def put(offsets: dict[int, int], top: int) -> None:
        nonlocal best
        if len(offsets) == len(lives):
            best = min(best, top)
        for index, life in enumerate(lives):
            under = (
                offsets[i] + other.size for i, other in enumerate(lives)
                if i in offsets and other.start < life.stop and life.start < other.stop
            )  # fmt: skip
            end = max(under, default=0) + life.size
            if index not in offsets and end < best:
                put({**offsets, index: end - life.size}, max(top, end))

    put({}, 0)
    return best


SMALL_LIVES = st.lists(
    st.builds(
        lambda start, steps, size: Lifetime(start, start + steps, size),
        st.integers(0, 6),
        st.integers(1, 4),
        st.integers(1, 6),
    ),
    max_size=6,
)


@given(SMALL_LIVES)
def test_small_packings_are_as_low_as_trying_everything(lives: list[Lifetime]) -> None:
    assert pack(lives, 1).height == lowest(lives)


def test_a_packing_above_the_bound_is_proved_to_be_the_lowest() -> None:
    packing = pack(ABOVE_THE_BOUND, 1)
    assert packing.height == lowest(ABOVE_THE_BOUND) == packing.bound + 1
    assert packing.note == (
        "1 bytes above the bound: the search was exhaustive, no packing is lower"
    )


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 7), st.sampled_from([-1, 1]), st.integers(0, 7), st.sampled_from([0, 1]))
def test_packings_near_one_above_the_bound_are_the_lowest(
    grown: int, bytes: int, prolonged: int, steps: int
) -> None:
    lives = list(ABOVE_THE_BOUND)
    lives[grown] = replace(lives[grown], size=max(1, lives[grown].size + bytes))
    lives[prolonged] = replace(lives[prolonged], stop=lives[prolonged].stop + steps)
    packing = pack(lives, 1)
    assert packing.height == lowest(lives)
    assert (packing.height > packing.bound) == bool(packing.note)


@pytest.mark.parametrize("name", "BCDEFGHJK")
def test_hard_cases_fit_their_capacity(name: str) -> None:
    """A and I take seconds, and so are left to bench/memory.py."""
    lives = read_lives(DATA / "minimalloc" / f"{name}.1048576.csv")
    packing = pack(lives, effort=300_000, enough=CAPACITY)
    check(lives, packing)
    assert packing.height <= CAPACITY


def test_a_search_that_ends_early_reports_it() -> None:
    lives = read_lives(DATA / "minimalloc" / "D.1048576.csv")
    packing = pack(lives, effort=500)
    above = packing.height - packing.bound
    assert packing.note.startswith(f"{above} bytes above the bound after 50")
    assert packing.note.endswith(f"the proved minimum is {packing.bound} bytes")
    assert pack(lives, effort=500, seconds=0.0).height >= packing.height


@given(LIVES, ALIGNS, st.data())
def test_an_order_that_was_found_packs_other_sizes(
    lives: list[Lifetime], align: int, data: st.DataObject
) -> None:
    packing = pack(lives, align, 200)
    stack = Stack.of(lives, packing)
    again = stack.settle(lives, packing.bound, align)
    assert again is not None and again.height <= packing.height
    sizes = data.draw(st.tuples(*(st.integers(0, 300) for _ in lives)))
    grown = [replace(life, size=size) for life, size in zip(lives, sizes, strict=True)]
    settled = stack.settle(grown, lower_bound(grown, align), align)
    known = all(life.size or not other.size for life, other in zip(lives, grown, strict=True))
    assert (settled is not None) == known
    if settled is not None:
        check(grown, settled, align)


@given(LIVES, st.integers(-1000, 1000), st.integers(1, 7))
def test_only_the_order_of_steps_counts(lives: list[Lifetime], shift: int, stretch: int) -> None:
    moved = [
        Lifetime(life.start * stretch + shift, life.stop * stretch + shift, life.size)
        for life in lives
    ]
    assert pack(moved) == pack(lives)


@given(LIVES, ALIGNS, st.data())
def test_check_catches_any_overlap(lives: list[Lifetime], align: int, data: st.DataObject) -> None:
    slots = st.integers(0, 12).map(lambda slot: slot * align)
    offsets = data.draw(st.tuples(*(slots for _ in lives)))
    tops = [at - (-life.size // align) * align for at, life in zip(offsets, lives, strict=True)]
    packing = Packing(offsets, max(tops, default=0), 0)
    try:
        check(lives, packing, align)
    except PackError as error:
        assert "overlap" in str(error)
        assert overlaps(lives, packing)
    else:
        assert not overlaps(lives, packing)


def overlaps(lives: Sequence[Lifetime], packing: Packing) -> bool:
    """Compare every two lives; offsets are aligned, so bytes decide."""
    held = list(zip(lives, packing.offsets, strict=True))
    return any(
        one.start < other.stop
        and other.start < one.stop
        and max(at, there) < min(at + one.size, there + other.size)
        for index, (one, at) in enumerate(held)
        for other, there in held[:index]
    )


@pytest.mark.parametrize("count", [63, 64, 65, 200, 700])
def test_tree_matches_a_linear_scan(count: int) -> None:
    draw = random.Random(count)
    steps = [draw.choice([1, 2, 3, 30, 64, 128, 300]) for _ in range(count)]
    lives = [Lifetime(n, n + step, draw.randint(1, 99)) for n, step in enumerate(steps)]
    sums = [live_sum(lives, step) for step in range(count)]
    peaks = [max(sums[life.start : life.stop]) for life in lives]
    order = sorted(range(count), key=lambda n: (-peaks[n], n))
    assert greedy.greedy(blocks_of(lives, 1), 0, tries=1) == plain_best_fit(lives, order)


# Faults and bad input


def test_check_catches_a_changed_offset() -> None:
    lives = [Lifetime(0, 4, 100), Lifetime(2, 6, 64), Lifetime(4, 8, 64)]
    packing = pack(lives)
    assert packing == Packing((0, 128, 0), 192, 192)
    wrong = Packing((0, 64, 0), 192, 192)
    with pytest.raises(PackError) as caught:
        check(lives, wrong)
    assert str(caught.value) == (
        "life 0 and life 1 overlap: life 0 holds bytes [0, 100) in steps [0, 4), "
        "life 1 holds bytes [64, 128) in steps [2, 6)"
    )


@pytest.mark.parametrize("seed", range(20))
def test_check_catches_one_fault_in_a_whole_network(seed: int) -> None:
    lives = read_lives(DENSENET)
    packing = pack(lives)
    wrong = random.Random(seed).randrange(1, len(lives))
    # What ran one step before is still being read: take its bytes.
    victim = max(i for i, life in enumerate(lives) if life.start < lives[wrong].start < life.stop)
    changed = list(packing.offsets)
    changed[wrong] = changed[victim]
    with pytest.raises(
        PackError, match=rf"life ({wrong} and life \d+|\d+ and life {wrong}) overlap"
    ):
        check(lives, Packing(tuple(changed), 2 * packing.height, packing.bound))


@pytest.mark.parametrize(
    ("packing", "message"),
    [
        (Packing((0,), 128, 128), "2 lives need as many offsets, got 1"),
        (Packing((0, 96), 192, 128), "life 1 must begin at a multiple of 64 bytes, got 96"),
        (Packing((0, -64), 128, 128), "life 1 must lie within 128 bytes, got bytes [-64, 0)"),
        (Packing((0, 64), 127, 128), "life 1 must lie within 127 bytes, got bytes [64, 128)"),
    ],
)
def test_check_reports_overlaps(packing: Packing, message: str) -> None:
    with pytest.raises(PackError) as caught:
        check([Lifetime(0, 2, 64), Lifetime(1, 3, 64)], packing)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("life", "align", "effort", "message"),
    [
        (Lifetime(0, 1, -1), 64, 8, "life 0 must have 0 bytes or more, got -1"),
        (Lifetime(3, 3, 1), 64, 8, "life 0 must stop after 3, got stop 3"),
        (Lifetime(0, 1, 1), 0, 8, "align must be at least 1 byte, got 0"),
        (Lifetime(0, 1, 1), 64, -1, "effort must be 0 steps or more, got -1"),
    ],
)
def test_bad_input_is_rejected(life: Lifetime, align: int, effort: int, message: str) -> None:
    with pytest.raises(PackError) as caught:
        pack([life], align, effort)
    assert str(caught.value) == message


# How the work grows


def test_the_search_ends_at_the_bound(counter: type[Counter]) -> None:
    lives = read_lives(DENSENET)
    assert pack(lives, effort=1000).ratio == 1.0
    assert counter.tries == 1


def short(count: int) -> list[Lifetime]:
    """A chain: each value is read by the next few."""
    draw = random.Random(0)
    return [Lifetime(n, n + draw.randint(2, 6), 64 * draw.randint(1, 999)) for n in range(count)]


def nested(count: int) -> list[Lifetime]:
    """Training: what the first half keeps, the second half reads backwards."""
    draw = random.Random(0)
    half = count // 2
    kept = [Lifetime(n, count - n, 64 * draw.randint(1, 999)) for n in range(half)]
    return kept + [Lifetime(n, n + 2, 64 * draw.randint(1, 999)) for n in range(half, count)]


def mixed(count: int) -> list[Lifetime]:
    """Many short lives beside twenty long ones."""
    draw = random.Random(0)
    starts = sorted(draw.choices(range(count // 2), k=20))
    long = [Lifetime(start, start + count // 2, 64 * draw.randint(1, 999)) for start in starts]
    return long + short(count - 20)


def joined(count: int) -> list[Lifetime]:
    """A sum of many values: each lives until the same step, and its operand for one step."""
    draw = random.Random(0)
    half = count // 2
    kept = [Lifetime(n, half, 64 * draw.randint(1, 999)) for n in range(half)]
    return kept + [Lifetime(n, n + 1, 64 * draw.randint(1, 999)) for n in range(half)]


def test_tries_limit_the_placements(counter: type[Counter]) -> None:
    lives = short(1_250)
    assert laid(lives, tries=3, align=64) > lower_bound(lives)
    assert counter.placements == 3 * len(lives)


@pytest.mark.parametrize("family", [short, nested, mixed, joined])
def test_the_work_grows_little_faster_than_the_lives(family, counter: type[Counter]) -> None:
    looks = []
    for count in (1_250, 10_000):
        counter.looks = 0
        laid(family(count), tries=1)
        looks.append(counter.looks)
    # Eight times the lives: n² would be 64 times the looks, n log n is 10.3 times.
    assert looks[1] <= 14 * looks[0]
