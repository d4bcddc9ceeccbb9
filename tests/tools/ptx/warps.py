"""What the threads of a warp do together: shfl, vote, redux, match, by lanes."""

from collections.abc import Callable, Sequence
from functools import reduce

from tests.tools.ptx.integers import Whole

LANES = 32
FULL = (1 << LANES) - 1


def shuffle(
    mode: str, values: Sequence[int], b: Sequence[int], c: Sequence[int]
) -> list[tuple[int, int]]:
    """Each lane's value and predicate of shfl.sync; all lanes take part."""
    results: list[tuple[int, int]] = []
    for lane in range(LANES):
        step, clamp, mask = b[lane] & 31, c[lane] & 31, (c[lane] >> 8) & 31
        most, least = (lane & mask) | (clamp & ~mask & 31), lane & mask
        source = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": least | (step & ~mask & 31),
        }[mode]
        inside = source >= most if mode == "up" else source <= most
        results.append((values[source if inside else lane], int(inside)))
    return results


def members(mask: int) -> list[int]:
    """The lanes of a mask."""
    return [lane for lane in range(LANES) if (mask >> lane) & 1]


def vote(mode: str, values: Sequence[int], mask: int) -> int:
    """vote.sync of predicates: all, any, uni, or ballot's bits."""
    inputs = [values[lane] for lane in members(mask)]
    if mode == "ballot":
        return sum(values[lane] << lane for lane in members(mask))
    return int({"all": all(inputs), "any": any(inputs), "uni": len(set(inputs)) == 1}[mode])


REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def redux(operator: str, kind: str, values: Sequence[int], mask: int) -> int:
    """redux.sync: one result for all members; a sum wraps around."""
    whole = Whole(kind)
    return whole.wrapped(
        reduce(REDUCTIONS[operator], (whole.value(values[n]) for n in members(mask)))
    )


# ---- carries ----------------------------------------------------------------------------------


def sum_of_pairs(a: int, b: int) -> int:
    """add.cc.u32 and addc.u32: a 64-bit sum."""
    return (a + b) & ((1 << 64) - 1)


def difference_of_pairs(a: int, b: int) -> int:
    """sub.cc.u32 and subc.u32: a 64-bit difference."""
    return (a - b) & ((1 << 64) - 1)


def product_of_pairs(a: int, b: int) -> int:
    """mad.lo.cc.u32, madc.hi.u32 and mul: the low 64 bits of a product of pairs."""
    return (a * b) & ((1 << 64) - 1)
