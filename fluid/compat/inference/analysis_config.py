"""`fluid.core.AnalysisConfig` and `NativeConfig`: the model and inference settings of release
1.8.5.

The model, feeding by name or position, and disabled passes work as there. Settings of libraries
that are not available (MKL-DNN, TensorRT, Lite) and of the log are stored, so that queries return
them, and have no effect: memory is always reused. A request that cannot be met, such as a GPU where
there is none, causes a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from copy import deepcopy
from enum import IntEnum

from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.errors import PlaceError
from runtime.gpu.cuda import device_of

__all__ = ["AnalysisConfig", "NativeConfig", "PaddlePassBuilder", "PaddlePlace", "Precision"]

IR_PASSES = (
    "remove_dropout", "remove_identities", "fuse_batch_norm", "split_batch_norm",
    "quantized_products", "narrow_floats", "layout", "fold_constants",
    "merge_transposes", "merge_reshapes", "merge_common", "fuse_pointwise", "fuse_epilogue",
)  # fmt: skip
"""The compiler's passes that change ops of the model, or fuse them into fewer kernels."""

PASSES = (*IR_PASSES, "eliminate_dead", "schedule", "recompute", "reuse_memory", "insert_deletes")
"""The passes that may be disabled."""


class PaddlePlace(IntEnum):
    """Device types, with the reference's numbers."""

    UNK = -1
    CPU = 0
    GPU = 1


class Precision(IntEnum):
    """Compute precisions of TensorRT."""

    Float32 = 0
    Int8 = 1
    Half = 2


class PaddlePassBuilder:
    """Pass names in order; passes of the reference are accepted without effect.

    >>> builder = PaddlePassBuilder(["fold_constants", "fc_fuse_pass"])
    >>> builder.delete_pass("fc_fuse_pass")
    >>> builder.all_passes()
    ['fold_constants']
    """

    def __init__(self, passes: Sequence[str]) -> None:
        self._passes = list(passes)

    def all_passes(self) -> list[str]:
        """The names, in order."""
        return list(self._passes)

    def set_passes(self, passes: Sequence[str]) -> None:
        """Replace the list of passes."""
        self._passes = list(passes)

    def append_pass(self, name: str) -> None:
        """Append a pass."""
        self._passes.append(name)

    def insert_pass(self, index: int, name: str) -> None:
        """Insert a pass before an index."""
        self._passes.insert(index, name)

    def delete_pass(self, name: str) -> None:
        """Remove a pass; an unknown name is ignored."""
        self._passes = [pass_name for pass_name in self._passes if pass_name != name]


class NativeConfig:
    """The model and how it is fed, as plain attributes.

    With `specify_input_name`, `run` matches tensors by name instead of order.
    """

    def __init__(self) -> None:
        self.model_dir = ""
        self.prog_file = ""
        self.param_file = ""
        self.use_gpu = False
        self.device = 0
        self.fraction_of_gpu_memory = -1.0
        self.specify_input_name = False
        self._threads = 1

    def cpu_math_library_num_threads(self) -> int:
        """The value that was set; 1 by default."""
        return self._threads

    def set_cpu_math_library_num_threads(self, cpu_math_library_num_threads: int) -> None:
        """Stored without effect: OPENBLAS_NUM_THREADS sets the threads of matrix products per
        process.
        """
        self._threads = cpu_math_library_num_threads


class AnalysisConfig:
    """The model, how it is fed and which passes are disabled, set by method calls.

    Constructed from a folder, from the files of program and parameters, or from another config.
    """

    Precision = Precision

    def __init__(
        self, model_dir: str | AnalysisConfig | None = None, params_file: str | None = None
    ) -> None:
        self._model_dir = self._prog_file = self._params_file = ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._passes = PaddlePassBuilder(PASSES)
        self._ir_optim, self._feed_fetch_ops, self._by_name = True, True, False
        self._memory_mb, self._threads = 100, 1
        self._device: int | None = None
        self._mkldnn, self._glog_disabled = False, False
        if isinstance(model_dir, AnalysisConfig):
            vars(self).update(deepcopy(vars(model_dir)))
        elif model_dir is not None:
            self.set_model(model_dir, params_file)

    # Model

    def set_model(self, model_dir: str, params_file: str | None = None) -> None:
        """Set a folder of `save_inference_model`, or the files of program and parameters."""
        if params_file is None:
            self._model_dir = model_dir
        else:
            self._prog_file, self._params_file = model_dir, params_file

    def set_model_buffer(
        self, prog_buffer: bytes, prog_size: int, params_buffer: bytes, params_size: int
    ) -> None:
        """Set the bytes of a program and of its parameters."""
        self._buffers = prog_buffer[:prog_size], params_buffer[:params_size]

    def set_prog_file(self, prog_file: str) -> None:
        """Set the program file."""
        self._prog_file = prog_file

    def set_params_file(self, params_file: str) -> None:
        """Set the combined parameter file."""
        self._params_file = params_file

    def model_dir(self) -> str:
        """The folder; empty if files are set."""
        return self._model_dir

    def prog_file(self) -> str:
        """The program file; empty if a folder is set."""
        return self._prog_file

    def params_file(self) -> str:
        """The combined parameter file; empty if a folder is set."""
        return self._params_file

    def model_from_memory(self) -> bool:
        """Whether the model was passed as bytes."""
        return self._buffers is not None

    def buffers(self) -> tuple[bytes, bytes] | None:
        """The bytes of program and parameters, if they were passed."""
        return self._buffers

    # Feeding

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Let `run` match tensors by name instead of order."""
        self._by_name = bool(x)

    def specify_input_name(self) -> bool:
        """Whether `run` matches tensors by name."""
        return self._by_name

    def switch_use_feed_fetch_ops(self, x: bool = True) -> None:
        """Stored without effect: `run` and `zero_copy_run` both always work."""
        self._feed_fetch_ops = bool(x)

    def use_feed_fetch_ops_enabled(self) -> bool:
        """The value that was set; True by default."""
        return self._feed_fetch_ops

    # Disabled passes

    def switch_ir_optim(self, x: bool = True) -> None:
        """Enable or disable folding and fusion of ops."""
        self._ir_optim = bool(x)

    def ir_optim(self) -> bool:
        """Whether ops may be folded and fused."""
        return self._ir_optim

    def pass_builder(self) -> PaddlePassBuilder:
        """The passes by name."""
        return self._passes

    def delete_pass(self, pass_name: str) -> None:
        """Disable a pass; passes of the reference are unknown here and ignored."""
        self._passes.delete_pass(pass_name)

    def disabled(self) -> Collection[str]:
        """The compiler's passes that are disabled."""
        enabled = set(self._passes.all_passes()) - set(() if self._ir_optim else IR_PASSES)
        return frozenset(PASSES) - enabled

    def enable_use_gpu(self, memory_pool_init_size_mb: int, device_id: int = 0) -> None:
        """Run on a GPU; where there is none, warn and stay on the CPU, as the reference does.

        The size of the memory pool is stored without effect.
        """
        self._memory_mb = memory_pool_init_size_mb
        if why := missing_gpu(device_id):
            _warn(f"enable_use_gpu: {why}, the model runs on the CPU")
        self._device = None if why else device_id

    def disable_gpu(self) -> None:
        """Run on the CPU, as by default."""
        self._device = None

    def use_gpu(self) -> bool:
        """Whether the model runs on a GPU."""
        return self._device is not None

    def gpu_device_id(self) -> int:
        """The index of the GPU; 0 on the CPU."""
        return self._device or 0

    def place(self) -> Place:
        """Where the model runs. Not in the reference."""
        return CPUPlace() if self._device is None else CUDAPlace(self._device)

    # Settings without effect

    def memory_pool_init_size_mb(self) -> int:
        """The value that was set; 100 by default."""
        return self._memory_mb

    def fraction_of_gpu_memory_for_pool(self) -> float:
        """0."""
        return 0.0

    def enable_memory_optim(self) -> None:
        """Memory is always reused; this has no effect."""

    def enable_mkldnn(self) -> None:
        """Stored without effect: NumPy computes."""
        self._mkldnn = True

    def mkldnn_enabled(self) -> bool:
        """Whether it was requested."""
        return self._mkldnn

    def set_mkldnn_cache_capacity(self, capacity: int = 0) -> None:
        """Ignored: there is no such cache."""

    def set_mkldnn_op(self, ops: Collection[str]) -> None:
        """Ignored: NumPy computes all ops."""

    def set_cpu_math_library_num_threads(self, cpu_math_library_num_threads: int) -> None:
        """Stored without effect: OPENBLAS_NUM_THREADS sets the threads of matrix products per
        process.
        """
        self._threads = cpu_math_library_num_threads

    def cpu_math_library_num_threads(self) -> int:
        """The value that was set; 1 by default."""
        return self._threads

    def enable_tensorrt_engine(
        self, workspace_size: int = 1 << 20, max_batch_size: int = 1, min_subgraph_size: int = 3,
        precision_mode: Precision = Precision.Float32, use_static: bool = False,
        use_calib_mode: bool = True,
    ) -> None:  # fmt: skip
        """Warn that there is no TensorRT."""
        _warn("enable_tensorrt_engine: there is no TensorRT here, the model runs in its own types")

    def tensorrt_engine_enabled(self) -> bool:
        """False."""
        return False

    def enable_lite_engine(
        self, zero_copy: bool = False, precision_mode: Precision = Precision.Float32,
        passes_filter: Sequence[str] = (), ops_filter: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Warn that there is no Paddle Lite."""
        _warn("enable_lite_engine: there is no Paddle Lite here, the model runs in its own types")

    def lite_engine_enabled(self) -> bool:
        """False."""
        return False

    def enable_quantizer(self) -> None:
        """Warn that nothing is quantised."""
        _warn("enable_quantizer: nothing is quantised here, the model runs in its own types")

    def enable_profile(self) -> None:
        """Print how to measure times."""
        _warn("enable_profile: for times, put `with fluid.profiler.profiler('CPU'):` around runs")

    def set_optim_cache_dir(self, opt_cache_dir: str) -> None:
        """Ignored: nothing is cached on disk."""

    def switch_ir_debug(self, x: bool = True) -> None:
        """Ignored: `fluid inspect --dump` shows a model after each pass."""

    def disable_glog_info(self) -> None:
        """There is no log; this has no effect."""
        self._glog_disabled = True

    def glog_info_disabled(self) -> bool:
        """Whether it was requested."""
        return self._glog_disabled

    def to_native_config(self) -> NativeConfig:
        """The same model for a native predictor."""
        native = NativeConfig()
        native.model_dir, native.specify_input_name = self._model_dir, self._by_name
        native.prog_file, native.param_file = self._prog_file, self._params_file
        return native


def missing_gpu(device_id: int) -> str:
    """Why no model runs on a GPU; empty if it may.

    Raises PlaceError for an index that no device has.
    """
    place = CUDAPlace(device_id)
    try:
        device_of(place)
    except PlaceError as error:
        return error.message
    return ""


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
