"""Every public name of fluid 1.8.5 is here with the signature it has there, or a reason is given.

`api.spec` was recorded from the reference: a name a line, with its parameters where it is called.
`api.deviations` lists, under a reason, the names that are not here or are called otherwise. It only
shrinks: a name that deviates no more must go, which `pytest --update` does.
"""

import inspect
from collections.abc import Iterator
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any

import fluid

HERE = Path(__file__).parent
SPEC = (HERE / "api.spec").read_text().splitlines()
DEVIATIONS = HERE / "api.deviations"
MARKS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
MISSING = object()


def name_of(line: str) -> str:
    return line.partition("(")[0]


def found(name: str) -> Any:
    """What fluid has under a name, MISSING for nothing."""
    return reduce(lambda owner, part: getattr(owner, part, MISSING), name.split("."), fluid)


def ours(line: str) -> str:
    """A line of the spec as it is here; "" where there is no such name."""
    name, called, _ = line.partition("(")
    value = found(name)
    if value is MISSING or (called and not callable(value)):
        return ""
    return f"{name}({parameters(value)})" if called else name


def parameters(value: Any) -> str:
    return ", ".join(shown(parameter) for parameter in inspect.signature(value).parameters.values())


def shown(parameter: inspect.Parameter) -> str:
    name = MARKS.get(parameter.kind, "") + parameter.name
    return name if parameter.default is parameter.empty else f"{name}={plain(parameter.default)!r}"


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def deviations() -> Iterator[tuple[str, str]]:
    """Each name that deviates and the reason, which is the comment above it."""
    reason = ""
    for line in DEVIATIONS.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            yield line, reason


KNOWN = dict(deviations())


def test_names_are_as_in_the_reference() -> None:
    expected = [line for line in SPEC if name_of(line) not in KNOWN]
    assert [ours(line) or f"no {name_of(line)}" for line in expected] == expected


def test_every_deviation_has_a_reason_and_is_in_the_spec() -> None:
    assert [name for name, reason in KNOWN.items() if not reason] == []
    assert KNOWN.keys() - {name_of(line) for line in SPEC} == set()
    assert len(list(deviations())) == len(KNOWN)


def test_no_deviation_is_listed_that_there_is_not(update: bool) -> None:
    needless = {name_of(line) for line in SPEC if ours(line) == line} & KNOWN.keys()
    if update and needless:
        lines = DEVIATIONS.read_text().splitlines(keepends=True)
        DEVIATIONS.write_text("".join(line for line in lines if line.strip() not in needless))
        return
    assert needless == set(), "now as in the reference: run pytest --update, or delete them"
