"""Names that are loaded at their first use are found by every way in which scripts reach them."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import fluid

WAYS = {
    "an attribute": "import fluid; assert fluid.transpiler.HashName",
    "a name of fluid": "import fluid; assert fluid.DistributeTranspiler.__module__",
    "from fluid": "from fluid import transpiler, DistributeTranspilerConfig, communicator",
    "a module below": "from fluid.transpiler.distribute_transpiler import DistributeTranspiler",
    "a dotted import": "import fluid.transpiler as t; import fluid; assert t is fluid.transpiler",
    "all names": "from fluid import *; assert DistributeTranspiler and transpiler and communicator",
    "dir": "import fluid; assert {'transpiler', 'memory_optimize', 'Program'} <= {*dir(fluid)}",
    "once": "import fluid; assert fluid.memory_optimize is fluid.memory_optimize",
    "a pickle": (
        "import pickle, fluid; kind = fluid.DistributeTranspilerConfig\n"
        "assert pickle.loads(pickle.dumps(kind)) is kind"
    ),
    "a pickle read elsewhere": (
        "import pickle, sys\n"
        "found = pickle.loads(b'cfluid\\nDistributeTranspilerConfig\\n.')\n"
        "assert found.__name__ == 'DistributeTranspilerConfig'"
    ),
    "a reload": (
        "import importlib, fluid; before = fluid.DistributeTranspiler\n"
        "assert importlib.reload(fluid).DistributeTranspiler is before"
    ),
    "another name": (
        "import fluid\n"
        "try: fluid.DistributedTranspiler\n"
        "except AttributeError as error: assert 'DistributeTranspiler' in str(error)\n"
        "else: raise SystemExit('found')"
    ),
    "paddle.fluid": (
        "import fluid; fluid.install_as_paddle()\n"
        "import paddle.fluid as old\n"
        "assert old.transpiler.HashName is fluid.transpiler.HashName\n"
        "assert old.DistributeTranspiler is fluid.DistributeTranspiler"
    ),
    "below paddle.fluid": (
        "import fluid; fluid.install_as_paddle()\n"
        "from paddle.fluid.transpiler import HashName\n"
        "import paddle.fluid.transpiler.distribute_transpiler as file\n"
        "from paddle.fluid.communicator import Communicator\n"
        "import paddle.fluid as old\n"
        "assert file.DistributeTranspiler is old.DistributeTranspiler\n"
        "assert old.transpiler.__name__ == 'paddle.fluid.transpiler'\n"
        "old.transpiler.HashName = 5\n"
        "assert fluid.transpiler.HashName == 5"
    ),
}


FORKS = """
import json, os, sys, traceback
import fluid

def fails(code):
    child = os.fork()
    if child == 0:
        try:
            exec(code, {})
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(*(way for way, code in json.load(sys.stdin).items() if fails(code)), sep="\\n", end="")
"""
"""Runs each way in a child of one process that has imported fluid, and prints those that fail."""


def test_names_are_loaded_in_every_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], input=json.dumps(WAYS), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_type_checkers_see_the_names_of_fluid() -> None:
    """`fluid/__init__.pyi` has each name that `import *` takes, from where it is loaded."""
    stub = ast.parse(Path(fluid.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    froms = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in froms for alias in node.names}
    (exported,) = [node.value for node in stub.body if getattr(node, "targets", None)][-1:]
    assert sorted(ast.literal_eval(exported)) == sorted(fluid.__all__)
    assert {*homes, "Tensor"} >= {*fluid.__all__}
    for name, home in homes.items():
        value = sys.modules.get(f"fluid.{name}") if home == "fluid" else None
        assert getattr(fluid, name) is (value or getattr(sys.modules[home], name)), name
