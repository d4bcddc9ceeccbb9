"""Every test here begins with empty default programs, an empty global scope and fresh names."""

import pytest

import fluid


@pytest.fixture(autouse=True)
def _fresh():
    with (
        fluid.unique_name.guard(),
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield
