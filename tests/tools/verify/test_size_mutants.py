"""Mutants of the code beyond thresholds still apply, and their tests exist."""

import re
from functools import cache

import pytest

from tools.verify import size_mutants
from tools.verify.mutations.sizes.catalogue import MUTANTS, WITHOUT
from tools.verify.mutations.sizes.mutant import KINDS, Mutant

ROOT = size_mutants.ROOT


@cache
def names_of_thresholds() -> frozenset[str]:
    """The names of all thresholds that modules of the compiler define."""
    files = [path for path in (ROOT / "compiler").rglob("*.py") if path.name != "thresholds.py"]
    texts = (file.read_text(encoding="utf-8") for file in files)
    return frozenset(n for text in texts for n in re.findall(r'= threshold\(\s*"(\w+)"', text))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_applies_and_names_tests(mutant: Mutant) -> None:
    assert size_mutants.applies(mutant), f"{mutant.file} has changed: change or replace the mutant"
    assert mutant.kind in KINDS
    assert mutant.threshold in names_of_thresholds()
    assert mutant.test_files
    for test in mutant.tests:
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text, f"{file} has no {function}"


def test_every_threshold_has_a_mutant_or_a_reason() -> None:
    broken = {mutant.threshold for mutant in MUTANTS}
    assert not broken & WITHOUT.keys()
    assert broken | WITHOUT.keys() == names_of_thresholds()


def test_names_differ_and_every_kind_occurs() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 70
    assert {mutant.kind for mutant in MUTANTS} == set(KINDS)


def test_mutant_application_is_reported() -> None:
    mutant = Mutant("one less", KINDS[0], "units", "a.py", "n + 1", "n", ("tests/a.py",))
    assert mutant.applied("return n + 1\n") == "return n\n"
    for text in ("return n\n", "n + 1 + n + 1\n"):
        with pytest.raises(ValueError, match="one less"):
            mutant.applied(text)


def test_first_failure_is_parsed() -> None:
    output = "....F\nFAILED tests/a.py::test_b[x - y] - AssertionError: 2\n1 failed, 4 passed"
    assert size_mutants.first_failure(1, output) == "tests/a.py::test_b[x - y]"
    assert size_mutants.first_failure(-11, "") == "the process ended with -11"
    assert size_mutants.first_failure(0, "5 passed") == ""
