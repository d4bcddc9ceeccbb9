"""Broken kernels: what the machine notices of one op's, and which changes are harmless."""

import pytest

pytest.importorskip("triton")

from bench import mutants


@pytest.fixture(scope="module")
def found():
    """The mutants of a softmax by kind, each with what was noticed of it."""
    ((_, case),) = mutants._calls(["softmax"])
    module = mutants.module_of(case)
    kinds = {}
    for each in mutants._mutants(case, module):
        kinds.setdefault(each.kind, []).append((each, mutants.outcome(case, module, each)))
    return kinds


def test_missing_barriers_and_wrong_launches_are_all_noticed(found):
    for kind in ("barrier removed", "warps doubled"):
        assert all(noticed for _, noticed in found[kind])


def test_harmless_changes_are_not_noticed(found):
    harmless = [pair for each in found.values() for pair in each if pair[0].is_harmless]
    assert not any(noticed for _, noticed in harmless)
