"""`ConfigFactory`: strategies and what they use, as a YAML file names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from compiler.errors import did_you_mean
from compiler.support.extras import install
from fluid.compat.absent import why_absent
from fluid.contrib.slim.distillation.distillation_strategy import DistillationStrategy
from fluid.contrib.slim.distillation.distiller import (
    FSPDistiller,
    L2Distiller,
    SoftLabelDistiller,
)
from fluid.contrib.slim.nas.light_nas_strategy import LightNASStrategy
from fluid.contrib.slim.prune.auto_prune_strategy import AutoPruneStrategy
from fluid.contrib.slim.prune.prune_strategy import UniformPruneStrategy
from fluid.contrib.slim.prune.pruner import StructurePruner
from fluid.contrib.slim.prune.sensitive_prune_strategy import SensitivePruneStrategy
from fluid.contrib.slim.quantization.quantization_strategy import QuantizationStrategy
from fluid.contrib.slim.searcher.controller import SAController

__all__ = ["ConfigFactory"]

Settings = dict[str, Any]
"""What a mapping of a file has; its reader knows the types."""

_PLUGINS = ("pruners", "quantizers", "distillers", "strategies", "controllers")
_CLASSES: dict[str, Callable[..., object]] = {
    made.__name__: made
    for made in (
        AutoPruneStrategy, DistillationStrategy, FSPDistiller, L2Distiller, LightNASStrategy,
        QuantizationStrategy, SAController, SensitivePruneStrategy, SoftLabelDistiller,
        StructurePruner, UniformPruneStrategy,
    )
}  # fmt: skip
"""The classes that a file may name."""


class ConfigFactory:
    """The objects of a file by name, and `compressor`, the settings of the `Compressor`.

    Arguments that are names of other objects stand for these, "none" stands for None; other
    settings of an object than its class has parameters are ignored. Raises OSError for a file that
    cannot be read, ValueError for a class that is not here, and ImportError without PyYAML.
    """

    def __init__(self, config: str) -> None:
        self.instances: dict[str, object] = {}
        self.compressor: Settings = {}
        self.version: int | None = None
        self._files: set[str] = set()
        self._parse(config)

    def instance(self, name: str) -> object:
        """Return an object, None if there is none of this name."""
        return self.instances.get(name)

    def _parse(self, file: str) -> None:
        if file in self._files:
            return
        self._files.add(file)
        loaded = _yaml().safe_load(Path(file).read_text(encoding="utf-8"))
        for key, value in cast(Settings, loaded or {}).items():
            if key == "version":
                self.version = int(value)
            elif key in _PLUGINS:
                for name, fields in value.items():
                    self.instances.setdefault(name, self._made(file, name, fields))
            elif key == "compressor":
                settings = ("epoch", "init_model", "checkpoint_path", "eval_epoch")
                self.compressor |= {name: value[name] for name in settings if name in value}
                names = value.get("strategies", [])
                self.compressor["strategies"] = [self._strategy(file, name) for name in names]
            elif key == "include":
                for other in value:
                    self._parse(str(other).strip())

    def _strategy(self, file: str, name: str) -> object:
        if name not in self.instances:
            raise ValueError(f"{file}: there is no strategy {name!r}")
        return self.instances[name]

    def _made(self, file: str, name: str, fields: Mapping[str, object]) -> object:
        kind = str(fields.get("class"))
        if kind not in _CLASSES:
            homes = ("nas", "prune", "quantization")
            reasons = [why_absent(f"paddle.fluid.contrib.slim.{home}.{kind}") for home in homes]
            why = next(filter(None, reasons), did_you_mean(kind, _CLASSES))
            raise ValueError(f"{file}: the class {kind!r} of {name!r} is not here. {why}")
        made = _CLASSES[kind]
        known = inspect.signature(made).parameters
        return made(**{key: self._value(v) for key, v in fields.items() if key in known})

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        if isinstance(value, str):
            return None if value.lower() == "none" else self.instances.get(value, value)
        return value


def _yaml() -> Any:
    """The package `yaml`."""
    if find_spec("yaml") is None:
        raise ImportError(f"configuration files need PyYAML: {install('slim')}", name="yaml")
    return import_module("yaml")
