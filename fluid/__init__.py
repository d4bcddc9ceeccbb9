"""The names of Paddle 1.x `fluid`: layers and optimizers record programs, an executor runs them."""

from fluid import (
    backward,
    clip,
    core,
    framework,
    initializer,
    io,
    layers,
    nets,
    optimizer,
    regularizer,
    unique_name,
)
from fluid.backward import gradients
from fluid.data import data
from fluid.data_feeder import DataFeeder
from fluid.executor import Executor, global_scope, scope_guard
from fluid.framework import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    name_scope,
    program_guard,
)
from fluid.lod_tensor import LoDTensor, create_lod_tensor, create_random_int_lodtensor
from fluid.missing import not_yet
from fluid.param_attr import ParamAttr
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.scope import Scope

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "DataFeeder",
    "Executor",
    "LoDTensor",
    "ParamAttr",
    "Program",
    "Scope",
    "Variable",
    "backward",
    "clip",
    "core",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "data",
    "default_main_program",
    "default_startup_program",
    "framework",
    "global_scope",
    "gradients",
    "initializer",
    "io",
    "layers",
    "name_scope",
    "nets",
    "optimizer",
    "program_guard",
    "regularizer",
    "scope_guard",
    "unique_name",
]

__getattr__ = not_yet(__name__, globals())
