"""Signatures are those of Paddle 1.8.5, from which `api.spec` was recorded."""

import inspect
import subprocess
import sys
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import fluid

SPEC = (Path(__file__).parent / "api.spec").read_text().splitlines()
MARKS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@pytest.mark.parametrize("line", SPEC, ids=lambda line: line.partition("(")[0])
def test_signature(line: str) -> None:
    name = line.partition("(")[0]
    parameters = inspect.signature(reduce(getattr, name.split("."), fluid)).parameters
    assert f"{name}({', '.join(map(shown, parameters.values()))})" == line


def shown(parameter: inspect.Parameter) -> str:
    name = MARKS.get(parameter.kind, "") + parameter.name
    return name if parameter.default is parameter.empty else f"{name}={plain(parameter.default)!r}"


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def test_every_exported_name_is_there() -> None:
    modules = [fluid, fluid.clip, fluid.framework, fluid.initializer, fluid.nets, fluid.optimizer]
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
