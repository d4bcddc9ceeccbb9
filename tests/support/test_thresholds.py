"""Thresholds are defined once, lowered in one context only, and seen when code compares with them."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from compiler.codegen.native.loops.split import MIN_PART_WORK
from compiler.support import thresholds
from compiler.support.thresholds import all_thresholds, lowered, lowered_values, observed


def test_each_has_a_smaller_value_for_tests() -> None:
    for threshold in all_thresholds().values():
        assert 1 <= threshold.small <= threshold.default, threshold.name


def test_a_name_is_defined_once() -> None:
    with pytest.raises(ValueError, match="'reduction_part_work' is defined already"):
        thresholds.threshold(MIN_PART_WORK.name, 1, "elements", "nothing", small=1)


def test_a_value_is_lowered_inside_the_block_and_in_its_context_only() -> None:
    with lowered({MIN_PART_WORK.name: 7}), ThreadPoolExecutor(1) as other:
        assert MIN_PART_WORK.value == 7
        assert lowered_values() == {MIN_PART_WORK.name: 7}
        assert other.submit(lambda: MIN_PART_WORK.value).result() == MIN_PART_WORK.default
    assert MIN_PART_WORK.value == MIN_PART_WORK.default
    assert not lowered_values()


@pytest.mark.parametrize("values", [{"no_such": 3}, {"reduction_part_work": 0}])
def test_unknown_names_and_values_below_one_are_refused(values: dict[str, int]) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=re.escape(f"{name}={values[name]}")), lowered(values):
        pass


def test_comparisons_are_observed() -> None:
    with observed() as names:
        assert not names
        assert MIN_PART_WORK.value
    assert names == {"reduction_part_work"}
