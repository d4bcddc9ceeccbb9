"""The import rules of docs/architecture.md and the sizes of CONTRIBUTING.md, checked in all modules.

Every module is parsed, never imported. Each rule is a function from one module to violations; the
last tests apply the rules to small trees with one violation each.
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
PACKAGES = ("compiler", "runtime", "fluid", "fleet")
COMMANDS = ("bench", "tools")
"""Packages that may import anything; only the sizes of their files and functions are checked."""

# Package, or module at the root of `compiler` → what it may import, besides itself. The entry of a
# folder applies to all modules in it without an entry of their own.
SHARED = ("compiler.errors", "compiler.support")
"""Any package may import these."""
VALUES = (
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
    "compiler.support.tracebacks": ("compiler.support.settings",),
    "compiler.errors": ("compiler.support",),
    "compiler.pack": ("compiler.support.dataclass",),
    "compiler.support.shared_arrays": ("compiler.ir.types",),
    "compiler.support.stored_arrays": ("compiler.support", "compiler.ir.types"),
    "compiler.ir": (*SHARED,),
    "compiler.ir.dims": SHARED,
    "compiler.ir.types": (*SHARED, "compiler.ir.dims"),
    "compiler.ir.philox": (*SHARED, "compiler.ir.types"),
    "compiler.ir.program": (*SHARED, "compiler.ir.dims", "compiler.ir.types"),
    "compiler.ir.windows": (*SHARED, "compiler.ir.dims", "compiler.ir.types"),
    "compiler.ir.attention": (*SHARED, "compiler.ir.dims", "compiler.ir.types"),
    "compiler.ir.libraries": (*SHARED, "compiler.ir.dims", "compiler.ir.types"),
    "compiler.ir.opdef": (
        *SHARED,
        *VALUES,
        "compiler.ir.windows",
        "compiler.ir.attention",
        "compiler.ir.libraries",
    ),
    "compiler.ir.opdef.composite": (
        *SHARED,
        "compiler.ir.opdef",
        "compiler.ir.program",
        "compiler.ir.conversion.composite_graph",
    ),
    "compiler.ir.region": (*SHARED, "compiler.ir.dims", "compiler.ir.types", "compiler.ir.opdef"),
    "compiler.ir.graph": (*SHARED, *VALUES, "compiler.ir.opdef", "compiler.ir.region"),
    "compiler.ir.autodiff": (*SHARED, *VALUES, "compiler.ir.opdef"),
    "compiler.ir.model_format": (*SHARED, *VALUES, "compiler.ir.opdef"),
    "compiler.ir.text": (
        *SHARED,
        *VALUES,
        "compiler.ir.opdef",
        "compiler.ir.region",
        "compiler.ir.graph",
        "compiler.ir.model_format",
    ),
    "compiler.ir.conversion": (
        *SHARED,
        *VALUES,
        "compiler.ir.opdef",
        "compiler.ir.region",
        "compiler.ir.graph",
        "compiler.ir.autodiff",
    ),
    "compiler.ir.analysis": (
        *SHARED,
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
    "compiler.record": ("compiler.errors", "compiler.support", "compiler.ir", "compiler.options"),
    "compiler.plan_check": ("compiler.errors", "compiler.support", "compiler.ir", "compiler.plan"),
    "compiler.freeze": (
        "compiler.errors",
        "compiler.support",
        "compiler.ir",
        "compiler.plan",
        "compiler.plan_check",
    ),
    "compiler.options": ("compiler.support",),
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
    "compiler.cost": ("compiler.support", "compiler.ir", "compiler.plan", "compiler.codegen"),
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
    "compiler.codegen.native.commands.step_store": (
        "compiler.options",
        "compiler.support",
        "compiler.ir.dims",
        "compiler.ir.types",
        "compiler.codegen.module_store",
        "compiler.codegen.native",
    ),
    "compiler.codegen.module_store": (
        "compiler.errors",
        "compiler.options",
        "compiler.support",
        "compiler.ir.types",
        "compiler.ir.dims",
        "compiler.codegen.module",
        "compiler.codegen.packed_params",
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
    "runtime.gpu": (
        *COMPILED,
        "runtime.errors",
        "runtime.forks",
        "runtime.device",
        "runtime.loaded_libraries",
        "runtime.packages",
    ),
    "runtime.tensors": (*COMPILED, "runtime.errors", "runtime.device", "runtime.gpu"),
    "fluid": ("compiler", "runtime"),
    "fluid.cli": ("compiler", "runtime", "fluid", "fleet"),
    "fluid.incubate": ("compiler", "runtime", "fluid", "fleet"),
    "fluid.compat.paddle": ("compiler", "runtime", "fluid", "fleet"),
    "fleet": ("compiler", "runtime", "fluid"),
}
FOLDERS = {
    name for name in TABLE if name != "compiler" and (ROOT / name.replace(".", "/")).is_dir()
}

# Dependency, or module of Python that some systems lack → the only modules that may import it. No
# other dependency may be imported.
IMPORTERS: dict[str, tuple[str, ...]] = {
    "numpy": PACKAGES,
    "ml_dtypes": ("compiler.ir.types",),
    "networkx": ("compiler.ir", "compiler.passes"),
    "triton": ("compiler.codegen.ahead", "compiler.codegen.triton"),
    "llvmlite": ("runtime.native.build",),
    "torch": ("runtime.gpu.cuda", "runtime.collective", "fleet.launch"),
    "grpc": ("runtime.ps.wire.transport",),
    "onnx": ("compiler.codegen.onnx",),
    "onnxruntime": ("fluid.cli.export",),
    "fcntl": ("runtime.files.folder_locks",),
    "msvcrt": ("runtime.files.folder_locks",),
    "resource": ("fluid.cli.limits",),
    "matplotlib": ("fluid.compat.paddle.utils.plot",),
    "yaml": ("fluid.contrib.slim.core.config",),
    "sitecustomize": ("fluid.compat.startup.on_path.sitecustomize",),
    "PIL": (
        "fluid.compat.paddle.dataset.image",
        "fluid.cli.values.images",
        "fleet.openks.few_shot.images",
    ),
}
# May be imported by name, on first use: optional dependencies, and what only a compilation needs.
LAZY_PACKAGES = (
    *IMPORTERS["triton"],
    *IMPORTERS["grpc"],
    "compiler.driver",
    "compiler.ops",
    "compiler.ir.conversion.composite_graph",
)

# May import files by computed names: ops, `paddle` modules, lazy names, removed names, children of
# `fluid run`, the PTX machine.
COMPUTED_IMPORTS = (
    "compiler.ops", "compiler.support.lazy_loading", "fluid.compat.as_paddle",
    "fluid.compat.old_python.mend", "fluid.compat.old_python.names",
    "fluid.compat.startup.children", "fluid.compat.startup.on_path.sitecustomize",
    "runtime.gpu.drivers",
)  # fmt: skip

FILE_LINES = 600
FUNCTION_LINES = 40
VAGUE = ("utils", "util", "misc", "common")
FOREIGN_PATHS = (
    "fluid.incubate", "fluid.compat.paddle", "fluid.compat.old_python", "fluid.contrib.utils"
)  # fmt: skip
"""Packages whose modules have the paths of Paddle or of Python."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""What may hold statements; expressions, most of a module, hold none."""
IMPORTING_CALLS = ("import_module", "__import__", "lazy_names")


@dataclass(frozen=True)
class Import:
    """One imported module: its absolute name, and whether it is imported in a function or by name."""

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


# Parsing


def parse_modules(root: Path, packages: tuple[str, ...] = PACKAGES) -> dict[str, Module]:
    """Return every module of the packages under `root`, by dotted name, sorted."""
    files = [path for top in packages for path in sorted((root / top).rglob("*.py"))]
    names = {path: dotted(path.relative_to(root)) for path in files}
    known = frozenset(names.values())
    return {name: parse_module(name, path, known) for path, name in names.items()}


def dotted(path: Path) -> str:
    """Return the import name of a file: `compiler/ir/__init__.py` is `compiler.ir`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parse_module(name: str, path: Path, known: frozenset[str]) -> Module:
    """Parse one file; a name imported from a package counts as a module where it is one."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    below = ast.AST if any(call in text for call in IMPORTING_CALLS) else STATEMENTS
    imports = tuple(find_imports(tree, package, known, below))
    return Module(name, path, text, tree, imports)


def find_imports(
    tree: ast.Module, package: str, known: frozenset[str], below: type | tuple[type, ...]
) -> Iterator[Import]:
    """Yield all imports in nodes of the types `below`; in a function or class they are hidden."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, hidden = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            yield from imports_of(node, package, known, hidden)
        inner = hidden or isinstance(node, Function | ast.Lambda | ast.ClassDef)
        children = [each for each in ast.iter_child_nodes(node) if isinstance(each, below)]
        pending += [(child, inner) for child in reversed(children)]


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
    elif isinstance(node, ast.Call) and called(node) in IMPORTING_CALLS[:2]:
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


def within(name: str, packages: tuple[str, ...] | set[str]) -> bool:
    """Whether a dotted name is one of `packages` or inside one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def entry_of(name: str) -> str | None:
    """Return the key of the import table that applies to a module, or None."""
    if name in TABLE:
        return name
    inside = [folder for folder in FOLDERS if within(name, (folder,))]
    return max(inside, key=len, default=None)


def import_rule(module: Module) -> Iterator[str]:
    """A module imports only what the table allows; only `compiler` imports op modules."""
    entry = entry_of(module.name)
    if entry is None:
        yield f"1: {module.name} is not in the import table"
        return
    allowed = (entry, *TABLE[entry]) if entry in FOLDERS else (module.name, *TABLE[entry])
    for imported in module.imports:
        if not within(imported.target, PACKAGES):
            continue
        if not within(imported.target, allowed):
            may = ", ".join(TABLE[entry]) or "nothing"
            yield f"{imported.line}: imports {imported.target}; {entry} may import {may}"
        elif within(imported.target, ("compiler.ops",)) and not within(entry, ("compiler",)):
            yield f"{imported.line}: imports {imported.target}; name an op by its string"


def dependency_rule(module: Module) -> Iterator[str]:
    """Only the listed modules import a dependency, or a module that some systems lack."""
    for imported in module.imports:
        top = imported.target.partition(".")[0]
        if not top or top in PACKAGES or (top in sys.stdlib_module_names and top not in IMPORTERS):
            continue
        if top not in IMPORTERS:
            yield f"{imported.line}: imports {top}, which is no dependency"
        elif not within(module.name, IMPORTERS[top]):
            yield f"{imported.line}: imports {top}, which only {', '.join(IMPORTERS[top])} may"


def local_import_rule(module: Module) -> Iterator[str]:
    """No import in a function or under TYPE_CHECKING; by name only what may be imported lazily."""
    for imported in module.imports:
        if imported.hidden and not imported.by_name:
            yield f"{imported.line}: imports {imported.target} inside a function or class"
        if (
            imported.by_name
            and module.name not in COMPUTED_IMPORTS
            and not may_import_by_name(module.name, imported.target)
        ):
            yield f"{imported.line}: imports {imported.target or 'a computed name'} by name"
    for node in ast.walk(module.tree) if "TYPE_CHECKING" in module.text else ():
        if not isinstance(node, ast.alias | ast.Attribute):
            continue
        if (node.name if isinstance(node, ast.alias) else node.attr) == "TYPE_CHECKING":
            yield f"{node.lineno}: hides imports under TYPE_CHECKING"


def may_import_by_name(name: str, target: str) -> bool:
    """Whether `name` may import `target` by name: a dependency, or an optional package."""
    if within(target, PACKAGES):
        return within(target, LAZY_PACKAGES)
    return within(name, IMPORTERS.get(target.partition(".")[0], ()))


def size_rule(module: Module) -> Iterator[str]:
    """Files and functions have a maximum length; docstrings of functions are not counted."""
    lines = module.text.count("\n")
    if lines > FILE_LINES:
        yield f"1: has {lines} lines, more than {FILE_LINES}"
    for node in statements(module.tree):
        if isinstance(node, Function) and (length := body_lines(node)) > FUNCTION_LINES:
            yield f"{node.lineno}: {node.name} has {length} lines, more than {FUNCTION_LINES}"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements below it, in order."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, STATEMENTS)]
        pending += reversed(inner)


def body_lines(function: Function) -> int:
    """Return the number of lines from `def` to the end of a function, without its docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return total
    docstring = function.body[0]
    return total - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def name_rule(module: Module) -> Iterator[str]:
    """A module is named for its subject; `utils` only where Paddle or Python has that path."""
    if module.name.rpartition(".")[2] in VAGUE and not within(module.name, FOREIGN_PATHS):
        yield f"1: {module.name} is named for no subject"


def docstring_rule(module: Module) -> Iterator[str]:
    """Modules, and their public classes and functions, have docstrings."""
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
    import_rule,
    dependency_rule,
    local_import_rule,
    size_rule,
    name_rule,
    docstring_rule,
)


def violations(module: Module) -> list[str]:
    """Return the violations of every rule, each as `path:line: sentence`."""
    return [f"{module.path}:{text}" for rule in RULES for text in rule(module)]


def cycles(modules: dict[str, Module]) -> list[list[str]]:
    """Return the sets of modules that import one another, sorted."""
    edges = [(module.name, each.target) for module in modules.values() for each in module.imports]
    graph = nx.DiGraph((a, b) for a, b in edges if b in modules)
    parts = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    return sorted(parts + [[name] for name in nx.nodes_with_selfloops(graph)])


# All modules

LATE = (
    "torch", "triton", "llvmlite", "grpc", "networkx", "matplotlib", "PIL", "compiler.ops", "compiler.driver",
    "compiler.ir.graph", "fluid.layers", "fluid.optimizer", "fluid.eager", "fluid.executor",
    "fluid.inference", "fluid.dataset", "fluid.transpiler", "fluid.communicator",
    "fluid.data_parallel.runner",
    "fluid.data_parallel.devices", "fluid.parameter_server.serving",
    "fluid.parameter_server.sessions", "runtime.collective.rings", "runtime.parallel",
    "runtime.ps", "fleet",
)  # fmt: skip
"""What `import fluid` may not load."""
RECORDING = "fluid.layers", "fluid.optimizer", "fluid.metrics", "fluid.eager", "compiler.driver"
"""What running a saved model may not load either: what records programs, and what compiles them."""
FEEDING = "fluid.dataset", "fluid.reading", "multiprocessing", "subprocess", "statistics"
"""What only training from files or from other processes needs, or a benchmark."""


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return parse_modules(ROOT)


def test_modules_follow_the_rules(modules: dict[str, Module]) -> None:
    result = [text for module in modules.values() for text in violations(module)]
    assert not result, "\n".join(result)


def test_commands_have_short_files_and_functions() -> None:
    commands = parse_modules(ROOT, COMMANDS).values()
    results = [f"{module.path}:{text}" for module in commands for text in size_rule(module)]
    assert not results, "\n".join(results)


def test_no_circular_imports(modules: dict[str, Module]) -> None:
    assert cycles(modules) == []


def loaded_by(modules: str, late: tuple[str, ...]) -> list[str]:
    """Those of `late` that a process loads when it imports modules."""
    source = f"import {modules}, sys; print(*[each for each in {late} if each in sys.modules])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.check_output(
        [sys.executable, "-c", source], env=environment, text=True
    ).split()


def test_import_fluid_is_light(modules: dict[str, Module]) -> None:
    """What compiles and what connects processes is loaded when a script first needs it."""
    assert loaded_by("fluid", LATE) == []
    known = {*modules, *IMPORTERS}
    assert [each for each in (*LATE, *RECORDING) if each not in known] == []


def test_a_saved_model_runs_without_what_records_programs() -> None:
    assert loaded_by("fluid.cli.infer", RECORDING + FEEDING) == []


# The rules themselves, on trees with one violation

LONG_FUNCTION = '"""M."""\ndef _f():\n' + "    x = 1\n" * 40
VIOLATIONS = [
    (
        "compiler/ir/graph.py",
        "import compiler.plan",
        "compiler.ir.graph may import compiler.errors",
    ),
    ("compiler/ir/graph.py", "from compiler import plan", "imports compiler.plan"),
    ("compiler/ir/graph.py", "from .. import plan", "imports compiler.plan"),
    ("compiler/ir/graph.py", "from ..plan import Plan", "imports compiler.plan"),
    (
        "compiler/pack/plan.py",
        "from compiler.ir import graph",
        "compiler.pack may import compiler.support.dataclass",
    ),
    ("compiler/interpret.py", "import compiler.ops.relu", "imports compiler.ops.relu"),
    ("compiler/extra.py", "", "is not in the import table"),
    ("runtime/loader.py", "from compiler.passes import base", "imports compiler.passes"),
    ("runtime/loader.py", "from compiler.ir.graph import Graph", "imports compiler.ir.graph"),
    ("runtime/loader.py", "import fluid", "imports fluid"),
    ("fluid/io.py", "import fleet", "imports fleet"),
    ("fluid/io.py", "from compiler.ops import relu", "name an op by its string"),
    (
        "fluid/io.py",
        "import torch",
        "which only runtime.gpu.cuda, runtime.collective, fleet.launch may",
    ),
    ("runtime/loader.py", "import triton.language", "imports triton"),
    ("compiler/plan.py", "import networkx as nx", "imports networkx"),
    ("fluid/io.py", "import scipy", "no dependency"),
    ("fluid/io.py", "import fcntl", "imports fcntl, which only runtime.files.folder_locks may"),
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
    ("fluid/io.py", "x = 1\n" * FILE_LINES, "more than 600"),
    ("fluid/utils.py", "", "named for no subject"),
    ("fluid/io.py", "def load(): ...", "load has no docstring"),
    ("fluid/io.py", "class Loader: ...", "Loader has no docstring"),
]
VALID = [
    ("compiler/ir/graph.py", "import networkx\nfrom compiler import errors"),
    ("compiler/driver.py", "import compiler.ops\nfrom compiler import plan"),
    ("runtime/loader.py", "from compiler.plan import Plan\nfrom compiler.ir import types"),
    ("runtime/gpu/cuda.py", "import importlib\ndef _f(): return importlib.import_module('torch')"),
    (
        "compiler/driver.py",
        "import importlib\ndef _f(): return importlib.import_module('compiler.codegen.triton')",
    ),
    ("fluid/framework.py", "x = 1\n" * (FILE_LINES - 2)),
    ("fluid/io.py", "def _hidden(): ..."),
]
OTHERS = dict.fromkeys(("compiler/errors.py", "compiler/plan.py", "compiler/ir/types.py"), "")


def write_tree(root: Path, files: dict[str, str]) -> dict[str, Module]:
    """Write source files under `root` and parse them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return parse_modules(root)


@pytest.mark.parametrize(("path", "source", "message"), VIOLATIONS)
def test_violation_is_reported(tmp_path: Path, path: str, source: str, message: str) -> None:
    modules = write_tree(tmp_path, OTHERS | {path: f'"""M."""\n{source}\n'})
    result = violations(modules[dotted(Path(path))])
    assert re.search(rf"{re.escape(path)}:\d+: .*{re.escape(message)}", "\n".join(result))


@pytest.mark.parametrize(("path", "source"), VALID)
def test_valid_module_has_no_violations(tmp_path: Path, path: str, source: str) -> None:
    modules = write_tree(tmp_path, OTHERS | {path: f'"""M."""\n{source}\n'})
    assert violations(modules[dotted(Path(path))]) == []


@pytest.mark.parametrize("package", ["compiler/pack", "runtime/tensors", "fluid", "fleet"])
def test_long_function_is_reported_without_its_docstring(tmp_path: Path, package: str) -> None:
    documented = LONG_FUNCTION.replace("    x = 1\n", '    """' + "\n" * 60 + '"""\n', 1)
    files = {f"{package}/long.py": LONG_FUNCTION, f"{package}/documented.py": documented}
    short, long = write_tree(tmp_path, files).values()
    assert violations(short) == []
    assert "_f has 41 lines" in violations(long)[0]


def test_circular_import_is_reported(tmp_path: Path) -> None:
    files = {"fluid/a.py": "from fluid import b", "fluid/b.py": "from .a import x"}
    assert cycles(write_tree(tmp_path, files)) == [["fluid.a", "fluid.b"]]
    late = (
        "from compiler.support.lazy_loading import lazy_names\nlazy_names(__name__, {'fluid': 'b'})"
    )
    files = {"fluid/__init__.py": late, "fluid/b.py": "from fluid import x"}
    assert cycles(write_tree(tmp_path / "late", files)) == [["fluid", "fluid.b"]]


def test_benchmarks_and_tests_are_apart() -> None:
    """Benchmarks import only `tests.support` and `tools.ptx`; only tests of commands import them."""
    wrong = []
    for path in (*ROOT.glob("bench/**/*.py"), *ROOT.glob("tests/**/*.py")):
        name = path.relative_to(ROOT).as_posix()
        package = dotted(path.relative_to(ROOT)).rpartition(".")[0]
        text = path.read_text()
        if name.startswith("tests/") and "bench" not in text:
            continue
        for each in find_imports(ast.parse(text), package, frozenset(), ast.AST):
            if name.startswith("bench/"):
                allowed = not within(each.target, ("tests", "tools"))
                allowed |= within(each.target, ("tests.support", "tools.ptx"))
            else:
                allowed = name.startswith(("tests/bench/", "tests/tools/"))
                allowed |= not within(each.target, ("bench",))
            if not allowed:
                wrong.append(f"{name}:{each.line}: imports {each.target}")
    assert wrong == []
