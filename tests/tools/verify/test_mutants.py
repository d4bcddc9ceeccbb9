"""Broken kernels: what the machine notices of one op's, and which changes are harmless."""

import pytest

pytest.importorskip("triton")

from tools.verify import mutants


@pytest.fixture(scope="module")
def found():
    """The mutants of a softmax by kind, each with what was noticed of it, and its module."""
    ((_, case),) = mutants._calls(["softmax"])
    module = mutants.module_of(case)
    kinds = {}
    for mutant in mutants._mutants(case, module):
        kinds.setdefault(mutant.kind, []).append((mutant, mutants.outcome(case, module, mutant)))
    return kinds, module


def test_missing_barriers_and_wrong_launches_are_all_noticed(found):
    kinds, _ = found
    for kind in ("barrier removed", "warps doubled"):
        assert all(noticed for _, noticed in kinds[kind])


def test_harmless_changes_are_not_noticed(found):
    kinds, _ = found
    harmless = [pair for kind in kinds.values() for pair in kind if pair[0].is_harmless]
    assert harmless and not any(noticed for _, noticed in harmless)


def test_noticed_mutants_are_not_proven_harmless(found):
    kinds, module = found
    for mutant, noticed in (pair for kind in kinds.values() for pair in kind):
        if mutant.place is not None and not mutant.is_harmless:
            assert mutants.is_proven(module, mutant) != bool(noticed), mutant.line
