"""Sizes with names are numbers in every way: what is computed with them is right when they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.dims import UNKNOWN, Dim, Size, evaluate, parse_size, product

NAMES = ("H", "N", "T")
VALUES = st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES})
ATOMS = st.integers(-4, 4) | st.sampled_from([Dim.named(name) for name in NAMES])


def combined(sizes: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
    pairs = st.tuples(sizes, sizes)
    return st.one_of(
        pairs.map(lambda pair: pair[0] + pair[1]),
        pairs.map(lambda pair: pair[0] - pair[1]),
        pairs.map(lambda pair: pair[0] * pair[1]),
        st.tuples(sizes, st.integers(1, 4)).map(lambda pair: pair[0] // pair[1]),
    )


SIZES = st.recursive(ATOMS, combined, max_leaves=6)


@given(SIZES, SIZES, VALUES)
def test_arithmetic_is_that_of_numbers(a: Size, b: Size, values: dict[str, int]):
    x, y = evaluate(a, values), evaluate(b, values)
    assert evaluate(a + b, values) == x + y
    assert evaluate(a - b, values) == x - y
    assert evaluate(a * b, values) == x * y
    assert evaluate(-a, values) == -x
    assert evaluate(product([a, b, 3]), values) == 3 * x * y


@given(SIZES, st.integers(1, 5), VALUES)
def test_division_rounds_down_as_numbers_do(a: Size, b: int, values: dict[str, int]):
    assert evaluate(a // b, values) == evaluate(a, values) // b


@given(SIZES, VALUES)
def test_division_by_a_name(a: Size, values: dict[str, int]):
    size = Dim.named("T") + 1
    assert evaluate(a // size, values) == evaluate(a, values) // (values["T"] + 1)


@given(SIZES)
def test_text_comes_back(a: Size):
    assert parse_size(str(a)) == a


@given(SIZES, SIZES, SIZES)
def test_equal_sums_and_products_have_one_form(a: Size, b: Size, c: Size):
    assert a + b + c == c + (b + a)
    assert a * b * c == c * (b * a)
    assert a * (b + c) == a * b + a * c
    assert str(a + b) == str(b + a)
    assert hash(a * b) == hash(b * a)
    assert a - a == 0


@given(SIZES)
def test_names_are_those_that_count(a: Size):
    names = () if isinstance(a, int) else a.names
    assert list(names) == sorted(set(names))
    assert isinstance(evaluate(a, dict.fromkeys(names, 2)), int)


def test_a_known_result_is_a_plain_number():
    n = Dim.named("N")
    assert (n * 4) // n == 4
    assert n * 0 == 0
    assert type(n - n + 3) is int


@pytest.mark.parametrize("make", [
    lambda u: u + 1, lambda u: 2 * u, lambda u: u - u, lambda u: u // 2, lambda u: 7 // u,
    lambda u: Dim.named("N") * u, lambda u: Dim.named("N") // u, lambda u: (u + 1) // Dim.named("N"),
])  # fmt: skip
def test_what_is_computed_from_the_unknown_is_unknown(make):
    assert make(UNKNOWN) == UNKNOWN
    assert str(make(UNKNOWN)) == "?"
    assert not UNKNOWN.known


def test_a_size_needs_its_names():
    with pytest.raises(KeyError):
        evaluate(Dim.named("N") + 1, {"T": 3})


@pytest.mark.parametrize(("text", "size"), [
    ("7", 7), (" 2 * 3 ", 6), ("-3", -3), ("?", UNKNOWN), ("N", Dim.named("N")),
    ("64*N + 3", Dim.named("N") * 64 + 3), ("(N + 1)//2", (Dim.named("N") + 1) // 2),
])  # fmt: skip
def test_sizes_read(text: str, size: Size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "N +", "f(N)", "N ** 2", "N / 2", "1.5", "'N'", "N.x", "[N]", "N M"]
)
def test_what_is_no_size_is_rejected(text: str):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)
