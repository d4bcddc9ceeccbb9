"""Examples in docstrings: each records into programs of its own."""

import importlib
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def programs_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give an example empty default programs, names that count from 0, and an empty scope."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    fluid = importlib.import_module("fluid")
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield
