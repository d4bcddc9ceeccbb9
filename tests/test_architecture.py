"""The import table, doors and sizes of docs/architecture.md, held by the source itself.

Every module is read as a syntax tree, never imported. Each rule is a function from one module
to complaints; the last tests feed the rules a house with a fault in it and see the complaint.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ("compiler", "runtime", "fluid", "fleet")

# Room → what it may import, besides itself. A folder is a room with all in it, a file of
# `compiler` is a room of its own; a module with no room is a complaint.
GROUND = ("compiler.errors", "compiler.support")
"""Any package may import these."""
VALUES = (
    "compiler.ir.cached_property",
    "compiler.ir.dims",
    "compiler.ir.types",
    "compiler.ir.program",
)
"""What the packages of `compiler.ir` are built on."""
FOR_PASSES = (
    "compiler.errors",
    "compiler.support",
    "compiler.options",
    "compiler.ir",
    "compiler.interpret",
    "compiler.record",
    "compiler.passes.base",
    "compiler.passes.state",
    "compiler.passes.norm_folding",
)
"""What each group of passes may import."""
COMPILED = (
    "compiler.errors",
    "compiler.support",
    "compiler.plan",
    "compiler.pack",
    "compiler.codegen.module",
    "compiler.ir.dims",
    "compiler.ir.types",
)
"""What `runtime` knows of `compiler`: plain data of a compiled module."""

TABLE: dict[str, tuple[str, ...]] = {
    "compiler.support": (),
    "compiler.support.tracebacks": (),
    "compiler.errors": ("compiler.support",),
    "compiler.pack": (),
    "compiler.support.shared_arrays": ("compiler.ir.types",),
    "compiler.support.stored_arrays": ("compiler.support", "compiler.ir.types"),
    "compiler.ir": (*GROUND,),
    "compiler.ir.cached_property": (),
    "compiler.ir.dims": (*GROUND, "compiler.ir.cached_property"),
    "compiler.ir.types": (*GROUND, "compiler.ir.cached_property", "compiler.ir.dims"),
    "compiler.ir.philox": (*GROUND, "compiler.ir.types"),
    "compiler.ir.program": (*GROUND, "compiler.ir.dims", "compiler.ir.types"),
    "compiler.ir.opdef": (*GROUND, *VALUES),
    "compiler.ir.opdef.composite": (
        *GROUND,
        "compiler.ir.opdef",
        "compiler.ir.program",
        "compiler.ir.conversion.composite_graph",
    ),
    "compiler.ir.region": (*GROUND, "compiler.ir.dims", "compiler.ir.types", "compiler.ir.opdef"),
    "compiler.ir.graph": (*GROUND, *VALUES, "compiler.ir.opdef", "compiler.ir.region"),
    "compiler.ir.autodiff": (*GROUND, *VALUES, "compiler.ir.opdef"),
    "compiler.ir.model_format": (*GROUND, *VALUES, "compiler.ir.opdef"),
    "compiler.ir.text": (
        *GROUND,
        *VALUES,
        "compiler.ir.opdef",
        "compiler.ir.region",
        "compiler.ir.graph",
        "compiler.ir.model_format",
    ),
    "compiler.ir.conversion": (
        *GROUND,
        *VALUES,
        "compiler.ir.opdef",
        "compiler.ir.region",
        "compiler.ir.graph",
        "compiler.ir.autodiff",
    ),
    "compiler.ir.analysis": (
        *GROUND,
        *VALUES,
        "compiler.ir.opdef",
        "compiler.ir.region",
        "compiler.ir.graph",
        "compiler.ir.text",
        "compiler.ir.conversion",
    ),
    "compiler.ops": (
        "compiler.errors",
        "compiler.support",
        "compiler.ir",
    ),
    "compiler.interpret": ("compiler.errors", "compiler.ir"),
    "compiler.plan": ("compiler.errors", "compiler.support", "compiler.ir"),
    "compiler.record": ("compiler.errors", "compiler.ir", "compiler.options"),
    "compiler.plan_check": ("compiler.errors", "compiler.ir", "compiler.plan"),
    "compiler.freeze": ("compiler.errors", "compiler.ir", "compiler.plan", "compiler.plan_check"),
    "compiler.options": (),
    "compiler.passes": (
        "compiler.errors",
        "compiler.support",
        "compiler.options",
        "compiler.ir",
        "compiler.interpret",
        "compiler.record",
    ),
    "compiler.passes.simplify": (*FOR_PASSES,),
    "compiler.passes.distribute": (*FOR_PASSES,),
    "compiler.passes.fusion": (*FOR_PASSES, "compiler.passes.simplify"),
    "compiler.passes.memory": (*FOR_PASSES, "compiler.passes.distribute"),
    "compiler.passes.device": (*FOR_PASSES, "compiler.support", "compiler.passes.memory"),
    "compiler.codegen": (
        "compiler.errors",
        "compiler.support",
        "compiler.ir",
        "compiler.plan",
        "compiler.pack",
        "compiler.record",
    ),
    "compiler.cost": ("compiler.ir", "compiler.plan", "compiler.codegen"),
    "compiler.cost.stage_costs": ("compiler",),
    "compiler.report": (
        "compiler.errors",
        "compiler.support",
        "compiler.ir",
        "compiler.plan",
        "compiler.pack",
        "compiler.codegen.module",
        "compiler.record",
        "compiler.cost",
    ),
    "compiler.module_store": (
        "compiler.errors",
        "compiler.options",
        "compiler.support",
        "compiler.ir.types",
        "compiler.codegen.module",
        "compiler.record",
    ),
    "compiler.debugging": ("compiler",),
    "compiler.driver": ("compiler",),
    "compiler.__main__": ("compiler",),
    "compiler": ("compiler",),
    "runtime": COMPILED,
    "runtime.memory": (*COMPILED, "runtime.errors"),
    "runtime.native": (
        *COMPILED,
        "compiler.options",
        "compiler.codegen.native.host",
        "compiler.codegen.native.machine",
        "compiler.codegen.native.executor",
        "runtime.errors",
        "runtime.forks",
        "runtime.packages",
    ),
    "runtime.files": (*COMPILED, "runtime.errors"),
    "runtime.ptx": (*COMPILED, "runtime.errors"),
    "runtime.gpu": (
        *COMPILED,
        "runtime.errors",
        "runtime.forks",
        "runtime.ptx",
        "runtime.device",
        "runtime.loaded_libraries",
        "runtime.packages",
    ),
    "runtime.tensors": (*COMPILED, "runtime.errors", "runtime.device", "runtime.gpu"),
    "fluid": ("compiler", "runtime"),
    "fluid.cli": ("compiler", "runtime", "fluid", "fleet"),
    "fluid.incubate": ("compiler", "runtime", "fluid", "fleet"),
    "fluid.paddle": ("compiler", "runtime", "fluid", "fleet"),
    "fleet": ("compiler", "runtime", "fluid"),
}
FOLDERS = {
    room for room in TABLE if room != "compiler" and (ROOT / room.replace(".", "/")).is_dir()
}

# Dependency, or module of Python that some systems lack → the modules by which it enters. Another
# dependency does not enter at all.
DOORS: dict[str, tuple[str, ...]] = {
    "numpy": HOUSE,
    "ml_dtypes": ("compiler.ir.types",),
    "networkx": ("compiler.ir", "compiler.passes"),
    "triton": ("compiler.codegen.ahead", "compiler.codegen.triton"),
    "llvmlite": ("runtime.native.build",),
    "torch": ("runtime.gpu.cuda", "runtime.collective", "fleet.launch"),
    "grpc": ("runtime.ps.wire.transport",),
    "fcntl": ("runtime.files.folder_locks",),
    "msvcrt": ("runtime.files.folder_locks",),
    "resource": ("fluid.cli.limits",),
    "matplotlib": ("fluid.paddle.utils.plot",),
    "PIL": ("fluid.paddle.dataset.image", "fluid.cli.values.images", "fleet.few_shot.images"),
}
# Opened by name, when first needed: what is optional, and what only a compilation needs.
OPTIONAL_ROOMS = (
    *DOORS["triton"],
    *DOORS["grpc"],
    "compiler.driver",
    "compiler.ops",
    "compiler.ir.conversion.composite_graph",
)

# Import their own files by computed names: ops, passes, what scripts import as paddle, lazy names.
FAMILIES = (
    "compiler.ops", "compiler.passes.pipeline", "compiler.support.lazy_loading",
    "fluid.compatibility.as_paddle",
)  # fmt: skip

FILE_LINES = 400
LONG_FILES = {"fluid.framework", "fluid.layers.nn", "fluid.optimizer"}
FUNCTION_LINES = 40
SHORT_FUNCTIONS = ("compiler", "runtime")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported module: its absolute dotted name, and how the source reaches for it."""

    target: str
    line: int
    hidden: bool = False
    by_name: bool = False


@dataclass(frozen=True)
class Module:
    """One source file: dotted name, text, syntax tree and imports."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: tuple[Import, ...]


# Reading the house


def read_house(root: Path) -> dict[str, Module]:
    """Return every module of the four packages under `root`, by dotted name, sorted."""
    files = [path for top in HOUSE for path in sorted((root / top).rglob("*.py"))]
    names = {path: dotted(path.relative_to(root)) for path in files}
    known = frozenset(names.values())
    return {name: read_module(name, path, known) for path, name in names.items()}


def dotted(path: Path) -> str:
    """Return the import name of a file: `compiler/ir/__init__.py` is `compiler.ir`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_module(name: str, path: Path, known: frozenset[str]) -> Module:
    """Parse one file; a name imported from a package counts as a module where it is one."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imports = tuple(find_imports(tree, package, known, hidden=False))
    return Module(name, path, text, tree, imports)


def find_imports(
    node: ast.AST, package: str, known: frozenset[str], hidden: bool
) -> Iterator[Import]:
    """Yield all imports below `node`; inside a function or class they are hidden."""
    for child in ast.iter_child_nodes(node):
        yield from imports_of(child, package, known, hidden)
        inner = hidden or isinstance(child, Function | ast.Lambda | ast.ClassDef)
        yield from find_imports(child, package, known, inner)


def imports_of(
    node: ast.AST, package: str, known: frozenset[str], hidden: bool
) -> Iterator[Import]:
    """Yield what this one node imports."""
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, hidden) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = absolute(node, package)
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield Import(full if full in known else base, node.lineno, hidden)
    elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
        yield Import(constant_name(node), node.lineno, hidden, by_name=True)
    elif isinstance(node, ast.Call) and called(node) == "lazy_names":
        yield from (Import(target, node.lineno, hidden) for target in lazy_homes(node, package))


def lazy_homes(node: ast.Call, package: str) -> Iterator[str]:
    """Yield the modules that a call of `lazy_names` loads names from."""
    for home, names in ast.literal_eval(node.args[1]).items():
        yield from (f"{home}.{name}" for name in names.split()) if home == package else (home,)


def absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module a `from … import` names, dots resolved against `package`."""
    if not node.level:
        return str(node.module)
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def called(node: ast.Call) -> str:
    """Return the last name of what is called: `import_module` for `importlib.import_module`."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def constant_name(node: ast.Call) -> str:
    """Return the module a call names, or "" where the name is computed."""
    value = getattr(node.args[0], "value", None) if node.args else None
    return value if isinstance(value, str) else ""


# The rules


def within(name: str, rooms: tuple[str, ...] | set[str]) -> bool:
    """Whether a dotted name is one of `rooms` or inside one."""
    return any(name == room or name.startswith(room + ".") for room in rooms)


def room_of(name: str) -> str | None:
    """Return the room a module belongs to, or None."""
    if name in TABLE:
        return name
    inside = [folder for folder in FOLDERS if within(name, (folder,))]
    return max(inside, key=len, default=None)


def room_rule(module: Module) -> Iterator[str]:
    """A module imports only what its room may; only `compiler` itself fills the op registry."""
    room = room_of(module.name)
    if room is None:
        yield f"1: {module.name} has no room in the import table"
        return
    allowed = (room, *TABLE[room]) if room in FOLDERS else (module.name, *TABLE[room])
    for found in module.imports:
        if not within(found.target, HOUSE):
            continue
        if not within(found.target, allowed):
            may = ", ".join(TABLE[room]) or "nothing"
            yield f"{found.line}: imports {found.target}; {room} may import {may}"
        elif within(found.target, ("compiler.ops",)) and not within(room, ("compiler",)):
            yield f"{found.line}: imports {found.target}; name an op by its string"


def door_rule(module: Module) -> Iterator[str]:
    """A dependency enters by its door and nowhere else; so does what only some systems have."""
    for found in module.imports:
        top = found.target.partition(".")[0]
        if not top or top in HOUSE or (top in sys.stdlib_module_names and top not in DOORS):
            continue
        if top not in DOORS:
            yield f"{found.line}: imports {top}, which has no door"
        elif not within(module.name, DOORS[top]):
            yield f"{found.line}: imports {top}, whose door is {', '.join(DOORS[top])}"


def hidden_rule(module: Module) -> Iterator[str]:
    """No import in a function or under TYPE_CHECKING; by name only where a dependency enters."""
    for found in module.imports:
        if found.hidden and not found.by_name:
            yield f"{found.line}: imports {found.target} inside a function or class"
        if (
            found.by_name
            and module.name not in FAMILIES
            and not at_a_door(module.name, found.target)
        ):
            yield f"{found.line}: imports {found.target or 'a computed name'} by name"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.alias | ast.Attribute):
            continue
        if (node.name if isinstance(node, ast.alias) else node.attr) == "TYPE_CHECKING":
            yield f"{node.lineno}: hides imports under TYPE_CHECKING"


def at_a_door(name: str, target: str) -> bool:
    """Whether `name` may import `target` by name: a dependency, or an optional package."""
    if within(target, HOUSE):
        return within(target, OPTIONAL_ROOMS)
    return within(name, DOORS.get(target.partition(".")[0], ()))


def size_rule(module: Module) -> Iterator[str]:
    """A file fits on a few screens, a function on one; docstrings of functions are not counted."""
    lines = module.text.count("\n")
    if lines > FILE_LINES and module.name not in LONG_FILES:
        yield f"1: has {lines} lines, more than {FILE_LINES}"
    if not within(module.name, SHORT_FUNCTIONS):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and (length := body_lines(node)) > FUNCTION_LINES:
            yield f"{node.lineno}: {node.name} has {length} lines, more than {FUNCTION_LINES}"


def body_lines(function: Function) -> int:
    """Return the lines of a function from `def` to its end, its docstring left out."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return total
    docstring = function.body[0]
    return total - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def docstring_rule(module: Module) -> Iterator[str]:
    """A module and its public classes and functions say what they are for."""
    if ast.get_docstring(module.tree) is None:
        yield "1: has no docstring"
    for node in module.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not is_overload(node) and ast.get_docstring(node) is None:
            yield f"{node.lineno}: {node.name} has no docstring"


def is_overload(node: Function | ast.ClassDef) -> bool:
    """Whether a definition is one of several signatures, documented by the last."""
    return any(getattr(decorator, "id", "") == "overload" for decorator in node.decorator_list)


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    room_rule,
    door_rule,
    hidden_rule,
    size_rule,
    docstring_rule,
)


def complaints(module: Module) -> list[str]:
    """Return what every rule has to say, each as `path:line: sentence`."""
    return [f"{module.path}:{text}" for rule in RULES for text in rule(module)]


def cycles(house: dict[str, Module]) -> list[list[str]]:
    """Return the circles of modules that import one another, sorted."""
    edges = [(module.name, found.target) for module in house.values() for found in module.imports]
    graph = nx.DiGraph((a, b) for a, b in edges if b in house)
    parts = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    return sorted(parts + [[name] for name in nx.nodes_with_selfloops(graph)])


# The house as it stands

OURS = read_house(ROOT)
LATE = (
    "torch", "triton", "llvmlite", "grpc", "networkx", "matplotlib", "PIL", "compiler.ops", "compiler.driver",
    "compiler.ir.graph", "fluid.transpiler", "fluid.communicator", "fluid.data_parallel.runner",
    "fluid.data_parallel.devices", "fluid.parameter_server.serving",
    "fluid.parameter_server.sessions", "runtime.collective.rings", "runtime.parallel",
    "runtime.ps", "runtime.ptx", "fleet",
)  # fmt: skip
"""What `import fluid` may not load."""


@pytest.mark.parametrize("name", OURS)
def test_module_keeps_the_rules(name: str) -> None:
    found = complaints(OURS[name])
    assert not found, "\n".join(found)


def test_no_circles() -> None:
    assert cycles(OURS) == []


def test_import_fluid_is_light() -> None:
    """What compiles and what connects processes is loaded when a script first needs it."""
    source = f"import fluid, sys; print(*[each for each in {LATE} if each in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    shown = subprocess.check_output([sys.executable, "-c", source], env=environment, text=True)
    assert shown.split() == []
    known = {*OURS, *DOORS}
    assert [each for each in LATE if each not in known] == []


# The rules themselves, on houses with one fault

LONG_FUNCTION = '"""M."""\ndef _f():\n' + "    x = 1\n" * 40
FAULTS = [
    (
        "compiler/ir/graph.py",
        "import compiler.plan",
        "compiler.ir.graph may import compiler.errors",
    ),
    ("compiler/ir/graph.py", "from compiler import plan", "imports compiler.plan"),
    ("compiler/ir/graph.py", "from .. import plan", "imports compiler.plan"),
    ("compiler/ir/graph.py", "from ..plan import Plan", "imports compiler.plan"),
    ("compiler/pack/plan.py", "from compiler.ir import graph", "compiler.pack may import nothing"),
    ("compiler/interpret.py", "import compiler.ops.relu", "imports compiler.ops.relu"),
    ("compiler/extra.py", "", "has no room"),
    ("runtime/loader.py", "from compiler.passes import base", "imports compiler.passes"),
    ("runtime/loader.py", "from compiler.ir.graph import Graph", "imports compiler.ir.graph"),
    ("runtime/loader.py", "import fluid", "imports fluid"),
    ("fluid/io.py", "import fleet", "imports fleet"),
    ("fluid/io.py", "from compiler.ops import relu", "name an op by its string"),
    (
        "fluid/io.py",
        "import torch",
        "whose door is runtime.gpu.cuda, runtime.collective, fleet.launch",
    ),
    ("runtime/loader.py", "import triton.language", "imports triton"),
    ("compiler/plan.py", "import networkx as nx", "imports networkx"),
    ("fluid/io.py", "import scipy", "no door"),
    ("fluid/io.py", "import fcntl", "imports fcntl, whose door is runtime.files.folder_locks"),
    ("fluid/io.py", "def _f():\n    import json", "imports json inside"),
    ("fluid/io.py", "class _C:\n    import json", "imports json inside"),
    ("fluid/io.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass", "hides"),
    ("fluid/io.py", "import typing\nif typing.TYPE_CHECKING:\n    pass", "hides"),
    ("fluid/io.py", "import importlib\n_t = importlib.import_module('torch')", "imports torch"),
    ("fluid/io.py", "import importlib\n_j = importlib.import_module('js' + 'on')", "computed name"),
    ("fluid/io.py", "_j = __import__('json')", "imports json by name"),
    (
        "fluid/io.py",
        "from compiler.support.lazy_loading import lazy_names\nlazy_names(__name__, {'fleet.roles': 'Role'})",
        "imports fleet.roles",
    ),
    ("fluid/io.py", "x = 1\n" * FILE_LINES, "more than 400"),
    ("fluid/io.py", "def load(): ...", "load has no docstring"),
    ("fluid/io.py", "class Loader: ...", "Loader has no docstring"),
]
SOUND = [
    ("compiler/ir/graph.py", "import networkx\nfrom compiler import errors"),
    ("compiler/driver.py", "import compiler.ops\nfrom compiler import plan"),
    ("runtime/loader.py", "from compiler.plan import Plan\nfrom compiler.ir import types"),
    ("runtime/gpu/cuda.py", "import importlib\ndef _f(): return importlib.import_module('torch')"),
    (
        "compiler/driver.py",
        "import importlib\ndef _f(): return importlib.import_module('compiler.codegen.triton')",
    ),
    ("fluid/framework.py", "x = 1\n" * FILE_LINES),
    ("fluid/io.py", "def _hidden(): ..."),
]
OTHERS = dict.fromkeys(("compiler/errors.py", "compiler/plan.py", "compiler/ir/types.py"), "")


def build(root: Path, files: dict[str, str]) -> dict[str, Module]:
    """Write a small house under `root` and read it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_house(root)


@pytest.mark.parametrize(("path", "source", "message"), FAULTS)
def test_fault_is_seen(tmp_path: Path, path: str, source: str, message: str) -> None:
    house = build(tmp_path, OTHERS | {path: f'"""M."""\n{source}\n'})
    found = complaints(house[dotted(Path(path))])
    assert re.search(rf"{re.escape(path)}:\d+: .*{re.escape(message)}", "\n".join(found))


@pytest.mark.parametrize(("path", "source"), SOUND)
def test_sound_module_is_left_alone(tmp_path: Path, path: str, source: str) -> None:
    house = build(tmp_path, OTHERS | {path: f'"""M."""\n{source}\n'})
    assert complaints(house[dotted(Path(path))]) == []


def test_long_function_is_seen_but_not_its_docstring(tmp_path: Path) -> None:
    documented = LONG_FUNCTION.replace("    x = 1\n", '    """' + "\n" * 60 + '"""\n', 1)
    house = build(
        tmp_path, {"runtime/memory/arena.py": LONG_FUNCTION, "runtime/tensors/scope.py": documented}
    )
    assert ["_f has 41 lines" in text for text in complaints(house["runtime.memory.arena"])] == [
        True
    ]
    assert complaints(house["runtime.tensors.scope"]) == []


def test_circle_is_seen(tmp_path: Path) -> None:
    files = {"fluid/a.py": "from fluid import b", "fluid/b.py": "from .a import x"}
    assert cycles(build(tmp_path, files)) == [["fluid.a", "fluid.b"]]
    late = (
        "from compiler.support.lazy_loading import lazy_names\nlazy_names(__name__, {'fluid': 'b'})"
    )
    files = {"fluid/__init__.py": late, "fluid/b.py": "from fluid import x"}
    assert cycles(build(tmp_path / "late", files)) == [["fluid", "fluid.b"]]
