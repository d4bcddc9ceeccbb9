"""`import paddle` for scripts of release 1.8: on request only, and not in place of another paddle.

`paddle`, `paddle.reader` and `paddle.dataset` are in the folder `fluid/compat/paddle` and are
loaded under those names. Below `paddle.fluid` each module is a view: it has the name that scripts
use and shows what `fluid` has, so that there is one default program, whichever name it is reached
by.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import numpy as np

from fluid.compat.absent import AbsentFinder, AbsentName, absent_text, why_absent
from fluid.compat.imported_names import home_of_imported_name

__all__ = ["expect_no_other_paddle", "install_as_paddle"]

FOLDER = Path(__file__).parent
LAYERS = (
    "control_flow detection device distributions io layer_function_generator "
    "learning_rate_scheduler loss math_op_patch metric_op nn ops rnn sequence_lod tensor utils"
).split()
"""The files that release 1.8 keeps its layers in; each shows all of them."""
BESIDES = (
    "fluid.layers.learning_rate", "fluid.layers.layer_functions", "fluid.layers.control.nested",
    "fluid.layers.files", "fluid.layers.recommending.lookup", "fluid.layers.control.static_rnn",
    "fluid.layer_helper", "fluid.framework", "fluid.param_attr", "fluid.initializer", "fluid",
)  # fmt: skip
"""Where a layer file finds names that it only imports, and which scripts take from it."""
INNER = (
    "fluid.cli", "fluid.compat", "fluid.demo", "fluid.incubate", "fluid.layers",
)  # fmt: skip
"""What the names below `paddle.fluid` do not show as it is."""


_CONTRIB = "paddle.fluid.contrib"
ON_DEMAND = {
    "paddle.fluid.core_avx": "fluid.core",
    "paddle.fluid.proto": "fluid.compat.proto",
    "paddle.incubate": "fluid.incubate",
    f"{_CONTRIB}.extend_optimizer.extend_optimizer_with_weight_decay": (
        "fluid.contrib.extend_optimizer"
    ),
    f"{_CONTRIB}.reader.distributed_reader": "fluid.contrib.reader",
    "paddle.fluid.dataloader.batch_sampler": "fluid.dataloader",
    "paddle.fluid.dataloader.dataset": "fluid.dataloader",
    **{
        f"paddle.fluid.{file.stem}": f"fluid.compat.old_names.{file.stem}"
        for file in (FOLDER / "old_names").glob("[a-z]*.py")
    },
    **{
        f"paddle.fluid.{name}": f"fluid.{name}"
        for name in "communicator contrib dygraph incubate parameter_server transpiler".split()
    },
}
"""What is loaded only where a script imports it, and where it lies here, longer names first."""
LOADED = (
    "average backward clip compiler core data_feed_desc data_feeder dataloader dataset "
    "eager.complex_variable eager.mode evaluator executor inference.predictor initializer input io "
    "layers lod_tensor metrics nets optimizer parallel_executor param_attr profiler reader "
    "regularizer unique_name"
).split()
"""The other modules of `fluid`, which are loaded before they are shown."""


class _OnDemand(Loader):
    """Shows what is in `ON_DEMAND`, and what is below it, when it is first imported."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A spec for names of `ON_DEMAND` that exist below `fluid`; None for others."""
        own = _own_name(name)
        exists = own is not None and _exists(own)
        return spec_from_loader(name, cls(), is_package=True) if exists else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A view of the module below `fluid`."""
        own = _own_name(spec.name)
        assert own is not None
        return _View(spec.name, import_module(own))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the module that is shown has run."""


def _exists(name: str) -> bool:
    """Whether there is a module of a name; False too if a package above it is missing."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _own_name(name: str) -> str | None:
    """The name below `fluid` of what is shown on demand; None where `name` is nothing of that."""
    prefix = next(
        (old_name for old_name in ON_DEMAND if f"{name}.".startswith(f"{old_name}.")), None
    )
    return None if prefix is None else ON_DEMAND[prefix] + name.removeprefix(prefix)


class _Again(Loader):
    """Finds a view anew where `importlib.reload` asks, which leaves what it shows as it is."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A spec for views that are there; None for other modules."""
        exists = isinstance(sys.modules.get(name), _View)
        return spec_from_loader(name, cls(), is_package=True) if exists else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The view itself."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the module that is shown has run."""


class _View(ModuleType):
    """A module under another name: attribute reads and writes are forwarded to the other module."""

    def __init__(self, name: str, shown: ModuleType) -> None:
        super().__init__(name, shown.__doc__)
        vars(self).update(__path__=[], __all__=_public(shown), _shown=shown)

    def __getattr__(self, name: str) -> object:
        if f"{self.__name__}.{name}" in ON_DEMAND:
            return import_module(f"{self.__name__}.{name}")
        shown = vars(self)["_shown"]
        is_layer = self.__name__.startswith("paddle.fluid.layers.")
        besides = (self.__name__.removeprefix("paddle."), *BESIDES) if is_layer else ()
        modules = (
            shown,
            *(sys.modules[module_name] for module_name in besides if module_name in sys.modules),
        )
        owner = next((module for module in modules if hasattr(module, name)), None)
        home = home_of_imported_name(self.__name__, name) if owner is None else None
        try:
            return getattr(import_module(home) if home else owner or shown, name)
        except AttributeError:
            full_name = f"{self.__name__}.{name}"
            if why_absent(full_name):
                raise AttributeError(absent_text(full_name)) from None
            raise

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, AbsentName):
            return  # the import system sets what it imports: the name stays absent
        is_own = name.startswith("__") or isinstance(value, _View)
        if is_own:  # attributes set by the import system
            vars(self)[name] = value
        else:
            setattr(vars(self)["_shown"], name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(vars(self)["_shown"])})


def _public(module: ModuleType) -> list[str]:
    """What `import *` takes of a module; without a list of names, all but modules."""
    named = vars(module).get("__all__")
    if named is not None:
        return list(named)
    members = vars(module).items()
    return [name for name, value in members if name[0] != "_" and not isinstance(value, ModuleType)]


def install_as_paddle(force: bool = False) -> ModuleType:
    """Make `import paddle` and its submodules import this package, in this process.

    Idempotent. Returns the module. Raises ImportError if another `paddle` is installed or imported,
    unless `force` is set.
    """
    loaded = sys.modules.get("paddle")
    if loaded is not None and _path(loaded) == FOLDER / "paddle":
        return loaded
    if not force:
        expect_no_other_paddle()
    for name in [name for name in sys.modules if name.partition(".")[0] == "paddle"]:
        del sys.modules[name]
    paddle = _load()
    for name, shown in _modules():
        _show(name, shown)
    _keep_names_of_types()
    for finder in (_OnDemand, _Again, AbsentFinder):
        if finder not in sys.meta_path:
            sys.meta_path.append(finder)
    return paddle


def _keep_names_of_types() -> None:
    """Keep NumPy's name "bool" for its booleans, even if a script sets `np.bool = bool`.

    NumPy 2 compares types with the attribute of that name.
    """
    namer = sys.modules.get("numpy._core._dtype")
    if namer is not None and getattr(namer, "np", None) is np:
        vars(namer)["np"] = copied = ModuleType("numpy")
        vars(copied).update(vars(np))


def _path(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return file and Path(file).parent


def expect_no_other_paddle() -> None:
    """Raise ImportError if another paddle is imported or installed; a folder of that name alone is
    none.
    """
    imported = sys.modules.get("paddle")
    spec = find_spec("paddle") if imported is None else None
    where = spec.origin if spec else getattr(imported, "__file__", None)
    if where or imported:
        raise ImportError(
            f"another paddle is installed at {where}: uninstall it, or take its place in this "
            "process by the option --force or fluid.install_as_paddle(force=True)",
            name="paddle",
        )


def _load() -> ModuleType:
    """Load the folder `paddle` next to this file as the package `paddle`."""
    spec = PathFinder.find_spec("paddle", [str(FOLDER)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{FOLDER / 'paddle'} is missing: install the package again")
    module = module_from_spec(spec)
    sys.modules["paddle"] = module
    spec.loader.exec_module(module)
    return module


def _modules() -> Iterator[tuple[str, ModuleType]]:
    """Names below paddle and what each shows, those above others first."""
    for name in LOADED:
        import_module(f"fluid.{name}")
    for name in sorted(sys.modules):
        if name.partition(".")[0] == "fluid" and not _is_inner(name):
            yield f"paddle.{name}", sys.modules[name]
    layers = sys.modules["fluid.layers"]
    yield "paddle.fluid.layers", layers
    yield from ((f"paddle.fluid.layers.{file}", layers) for file in LAYERS)
    yield "paddle.fluid.layers.collective", sys.modules["fluid.layers.collective"]


def _is_inner(name: str) -> bool:
    return any(f"{name}.".startswith(f"{inner}.") for inner in INNER)


def _show(name: str, shown: ModuleType) -> None:
    """Put a view in place; a function of the same name, as `fluid.data`, stays what it is."""
    view = _View(name, shown)
    sys.modules[name] = view
    above, _, last = name.rpartition(".")
    owner = sys.modules[above]
    if isinstance(getattr(owner, last, view), ModuleType):
        vars(owner)[last] = view
