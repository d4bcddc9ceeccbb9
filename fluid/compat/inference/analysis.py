"""`fluid.core.create_paddle_predictor`: the predictors of release 1.8.5, based on
`fluid.Predictor`.

Each has its own input and output tensors and may be used by one thread at a time; `clone` returns
one for another thread, which shares the model, its parameters and the compiled code.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from compiler.errors import CompileError, did_you_mean
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.tracebacks import entry_point
from fluid.compat.inference.analysis_config import AnalysisConfig, NativeConfig, missing_gpu
from fluid.compat.inference.paddle_tensor import PaddleTensor, ZeroCopyTensor, fed
from fluid.compiler import CompiledProgram, Predict
from fluid.inference.predictor import Predictor
from fluid.saving.inference_model import InferenceModel, read_inference_model
from runtime.device import CPUPlace, CUDAPlace
from runtime.files.atomic_saves import reading
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "AnalysisPredictor",
    "NativePaddlePredictor",
    "PaddlePredictor",
    "create_paddle_predictor",
]


@entry_point
def create_paddle_predictor(config: AnalysisConfig | NativeConfig) -> PaddlePredictor:
    """Create a predictor of the model that a config names.

    Raises TypeError for an invalid config, ValueError if it names no model, and the errors of
    `load_inference_model`.
    """
    return _predictor(config)


def _predictor(config: object) -> PaddlePredictor:
    if isinstance(config, AnalysisConfig):
        return AnalysisPredictor(config)
    if isinstance(config, NativeConfig):
        return NativePaddlePredictor(config)
    raise TypeError(f"config must be an AnalysisConfig or a NativeConfig, not {config!r:.60}")


class PaddlePredictor:
    """Base class of the predictors of release 1.8.5."""

    def __init__(self, shared: Predictor, by_name: bool) -> None:
        self._shared = shared
        self._by_name = by_name
        self._inputs = {name: ZeroCopyTensor(name) for name in shared.feed_names}
        self._outputs = {name: ZeroCopyTensor(name) for name in shared.fetch_names}

    def get_input_names(self) -> list[str]:
        """The names of the feeds, in order."""
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        """The names of the fetches, in order."""
        return list(self._outputs)

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """The declared shapes of the feeds, -1 for dynamic dims."""
        return {var.name: list(var.shape) for var in self._shared.feeds}

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """An input tensor, to be set before `zero_copy_run`; CompileError for another name."""
        return _named(self._inputs, name, "input")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """An output tensor, overwritten by each run; CompileError for another name."""
        return _named(self._outputs, name, "output")

    @entry_point
    def zero_copy_run(self) -> bool:
        """Compute the outputs from the inputs and return True. Raises as `fluid.Predictor.run`."""
        self._run({name: tensor.fed() for name, tensor in self._inputs.items()})
        return True

    @entry_point
    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Run on tensors in the order of inputs, or by name if the config says so."""
        values = [fed(tensor) for tensor in inputs]
        named = {tensor.name: value for tensor, value in zip(inputs, values, strict=True)}
        results = self._run(named if self._by_name else values)
        pairs = zip(self._outputs, results, strict=True)
        return [PaddleTensor.result(name, value) for name, value in pairs]

    def clone(self) -> PaddlePredictor:
        """Another predictor of the same model, with its own tensors."""
        other = type(self).__new__(type(self))
        PaddlePredictor.__init__(other, self._shared, self._by_name)
        return other

    def _run(self, feed: Mapping[str, object] | Sequence[object]) -> list[Array | LoDTensor]:
        results = self._shared.run(feed)
        for tensor, value in zip(self._outputs.values(), results, strict=True):
            _take(tensor, value)
        return results


class AnalysisPredictor(PaddlePredictor):
    """The predictor of an AnalysisConfig."""

    Config = AnalysisConfig

    def __init__(self, config: AnalysisConfig) -> None:
        options = Options.from_env()
        options = replace(options, disable=options.disable.union(config.disabled()))
        predictor = Predictor(_model(config), options=options, place=config.place())
        super().__init__(predictor, config.specify_input_name())


class NativePaddlePredictor(PaddlePredictor):
    """The predictor of a NativeConfig."""

    Config = NativeConfig

    def __init__(self, config: NativeConfig) -> None:
        model = _located(config.model_dir, config.prog_file, config.param_file)
        place = CUDAPlace(config.device) if config.use_gpu else CPUPlace()
        if config.use_gpu and (why := missing_gpu(config.device)):
            warnings.warn(f"use_gpu: {why}, the model runs on the CPU", stacklevel=3)
            place = CPUPlace()
        super().__init__(Predictor(model, place=place), config.specify_input_name)


def _model(config: AnalysisConfig) -> InferenceModel:
    """The model of a config; a folder has priority over files, as in the reference."""
    if (buffers := config.buffers()) is not None:
        return read_inference_model(None, *buffers)
    return _located(config.model_dir(), config.prog_file(), config.params_file())


def _located(folder: str, program: str, params: str) -> InferenceModel:
    if folder:
        return read_inference_model(folder)
    if not program or not params:
        raise ValueError("the config names no model: call set_model with a folder or two files")
    if Path(program).parent == Path(params).parent:
        return read_inference_model(Path(program).parent, Path(program).name, Path(params).name)
    with reading(Path(program).parent), reading(Path(params).parent):
        return read_inference_model(None, Path(program).read_bytes(), Path(params).read_bytes())


def _named(tensors: dict[str, ZeroCopyTensor], name: str, kind: str) -> ZeroCopyTensor:
    if name not in tensors:
        hint = did_you_mean(name, tensors) or f"there are {', '.join(tensors)}"
        raise CompileError(f"the model has no {kind} named {name!r}", hint=hint)
    return tensors[name]


def _take(tensor: ZeroCopyTensor, value: Array | LoDTensor) -> None:
    """Store a result in an output tensor."""
    tensor.hold(np.asarray(value))
    tensor.set_lod(value.lod() if isinstance(value, LoDTensor) else [])


def _run_of(config: AnalysisConfig | NativeConfig) -> Predict:
    """What runs the model of a config."""
    return create_paddle_predictor(config).run


CompiledProgram.predictor_of = staticmethod(_run_of)
