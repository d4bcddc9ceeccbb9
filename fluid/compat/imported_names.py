"""Names that modules of release 1.8.5 only import, and that scripts take from these modules.

`fluid.layers.core` and `fluid.optimizer.append_regularization_ops` are such names: nobody documents
them, and whole projects stop without them.
"""

from __future__ import annotations

__all__ = ["home_of_imported_name"]

_HOMES = {
    "paddle.fluid": "backward compiler core executor framework initializer layers unique_name",
    "fluid.framework": (
        "Block Operator OpProtoHolder Parameter Program Variable convert_np_dtype_to_dtype_ "
        "cpu_places cuda_places default_main_program default_startup_program device_guard "
        "grad_var_name in_dygraph_mode name_scope program_guard _cpu_num _cuda_ids "
        "_current_expected_place"
    ),
    "fluid.layer_helper": "LayerHelper",
    "fluid.compat.old_names.layer_helper_base": "LayerHelperBase",
    "fluid.compat.old_names.wrapped_decorator": "signature_safe_contextmanager wrap_decorator",
    "fluid.compat.old_names.log_helper": "get_logger",
    "fluid.initializer": "Constant Normal NumpyArrayInitializer Xavier",
    "fluid.param_attr": "ParamAttr WeightNormParamAttr",
    "fluid.backward": "append_backward",
    "fluid.clip": "GradientClipByNorm append_gradient_clip_ops error_clip_callback",
    "fluid.regularizer": "append_regularization_ops",
    "fluid.contrib.slim.prune.sensitive_prune_strategy": "SensitivePruneStrategy",
    "fluid.executor": "Executor global_scope scope_guard",
    "fluid.compiler": "CompiledProgram",
    "fluid.parallel_executor": "ParallelExecutor",
    "fluid.evaluator": "Evaluator",
    "fluid.data_feeder": (
        "DataFeeder check_dtype check_type check_variable_and_dtype convert_dtype"
    ),
    "fluid.dataset": "InMemoryDataset",
    "fluid.transpiler.details": (
        "UnionFind VarStruct VarsDistributed delete_ops find_op_by_output_arg wait_server_ready"
    ),
    "fluid.transpiler.ps_dispatcher": "PSDispatcher RoundRobin",
    "fluid.contrib.slim.quantization.quantization_pass": (
        "_get_op_input_var_names _get_op_output_var_names _out_scale_op_list"
    ),
    "fluid.compat.graphs": "IrGraph IrNode",
    "fluid.eager.variables": "ParamBase VarBase",
    "fluid.eager.complex_variable": "ComplexVariable",
    "functools": "reduce",
}
_HOME_BY_NAME = {name: home for home, names in _HOMES.items() for name in names.split()}


def home_of_imported_name(module: str, name: str) -> str | None:
    """The module that has a name which modules below `paddle.fluid` import; None for others.

    The native module imports nothing: its `Executor` is another one.
    """
    is_python = module.startswith("paddle.fluid.") and not module.startswith("paddle.fluid.core")
    return _HOME_BY_NAME.get(name) if is_python else None
