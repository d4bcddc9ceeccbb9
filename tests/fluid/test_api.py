"""What `import fluid` gives: every name it says it has, soon enough."""

import subprocess
import sys
from pathlib import Path

import fluid


def test_every_exported_name_is_there() -> None:
    modules = [
        fluid,
        fluid.clip,
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


IMPORTS = """
import time
start = time.process_time()
import networkx, numpy
others = time.process_time()
import fluid
print((time.process_time() - others) / (others - start))
"""


def test_import_costs_about_what_numpy_and_networkx_cost() -> None:
    """A ratio, as machines that test are slow in their own ways; one of five runs will do."""
    root = Path(fluid.__file__).parents[1]

    def ratio() -> float:
        return float(subprocess.check_output([sys.executable, "-c", IMPORTS], cwd=root, text=True))

    assert any(ratio() < 1.5 for _ in range(5))
