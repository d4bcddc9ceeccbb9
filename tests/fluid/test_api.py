"""`import fluid`: every listed name exists, and the import is fast."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fluid


def test_every_exported_name_is_there() -> None:
    modules = [
        fluid,
        fluid.clip,
        fluid.communicator,
        fluid.compiler,
        fluid.core,
        fluid.framework,
        fluid.initializer,
        fluid.io,
        fluid.layers.readers,
        fluid.nets,
        fluid.optimizer,
        fluid.profiler,
        fluid.reader,
    ]
    for module in modules:
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", ["dygraph", "contrib"])
def test_a_star_import_brings_no_module_that_release_1_8_5_does_not(package: str) -> None:
    """`layers` is what a script has imported as `paddle.fluid.layers`."""
    names: dict[str, object] = {}
    exec(f"from fluid.{package} import *", names)
    assert {name for name, value in names.items() if isinstance(value, ModuleType)} <= {
        "mixed_precision"
    }


IMPORTS = """
import time
start = time.process_time()
import networkx, numpy
others = time.process_time()
import fluid
print((time.process_time() - others) / (others - start))
"""


def test_import_costs_about_what_numpy_and_networkx_cost(tmp_path: Path) -> None:
    """A ratio, as machines that test are slow in their own ways; one of five runs will do.

    The first run compiles to bytecode, which later ones find.
    """
    root = Path(fluid.__file__).parents[1]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def ratio() -> float:
        command = [sys.executable, "-c", IMPORTS]
        return float(subprocess.check_output(command, cwd=root, text=True, env=env))

    assert any(ratio() < 1.5 for _ in range(6))


def test_what_only_a_compilation_needs_is_not_imported() -> None:
    root = Path(fluid.__file__).parents[1]
    code = "import fluid, sys; print(*{'networkx', 'torch', 'triton'} & set(sys.modules))"
    result = subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True)
    assert result.strip() == ""
