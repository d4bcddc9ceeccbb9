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


def test_import_is_quick() -> None:
    """Half of it is NumPy and networkx; machines that test are shared, so one of five will do."""
    clock = "import time; t = time.process_time(); import fluid; print(time.process_time() - t)"
    root = Path(fluid.__file__).parents[1]

    def seconds() -> float:
        return float(subprocess.check_output([sys.executable, "-c", clock], cwd=root, text=True))

    assert any(seconds() < 0.3 for _ in range(5))
