"""A mutant: a piece of source text, what replaces it, and the tests that must fail then."""

from __future__ import annotations

from dataclasses import dataclass

DROPPED = "part dropped"
TWICE = "part read twice"
ONE_ELEMENT = "lanes read one element"
UNMASKED = "tail not masked"
NARROW = "index too narrow"
WRONG = "wrong combination"

KINDS = (DROPPED, TWICE, ONE_ELEMENT, UNMASKED, NARROW, WRONG)


@dataclass(frozen=True)
class Mutant:
    """One change of a file: `old`, which occurs in it once, becomes `new`.

    `threshold` is the one that sizes cross to reach this code, `tests` are arguments of pytest that
    select tests of `make test`, at least one of which must fail.
    """

    name: str
    kind: str
    threshold: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the change; ValueError if it does not apply."""
        if self.old == self.new or text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has its text {text.count(self.old)} times")
        return text.replace(self.old, self.new)

    @property
    def test_files(self) -> list[str]:
        """The files that its tests are in."""
        return [test.partition("::")[0] for test in self.tests if test.startswith("tests/")]
