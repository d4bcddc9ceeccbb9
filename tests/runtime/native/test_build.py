"""Functions that are marked so are compiled without optimisations, which takes less time."""

import pytest

from compiler.codegen.native.executor import executor_text
from compiler.codegen.native.machine import MACHINES, Machine
from runtime.native.build import UNOPTIMISED, assembly


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_all_of_the_executor_is_compiled_without_optimisations(machine: Machine) -> None:
    text = executor_text(machine)
    assert text.count("\ndefine ") == text.count(UNOPTIMISED) > 10


def test_the_mark_decides_how_a_module_is_compiled() -> None:
    machine = MACHINES["avx2"]
    text = executor_text(machine)
    marked, unmarked = assembly(text, machine), assembly(text.replace(UNOPTIMISED, " {"), machine)
    assert len(marked.splitlines()) > 1.2 * len(unmarked.splitlines())
