"""Our own variables: how programs are compiled and run."""

from __future__ import annotations

from compiler.support.settings.setting import (
    BUDGET,
    BYTES,
    FLAG,
    FOLDER,
    LIMIT,
    NAMES,
    NUMBER,
    TEXT,
    Setting,
    choice,
    optional,
)

FLUID_TARGET = Setting(
    "FLUID_TARGET",
    optional(choice("native", "numpy")),
    None,
    "The code generator for programs on the CPU: machine code ([native.md](native.md)), or NumPy "
    "calls that can be read. By default native where it runs.",
)
FLUID_CPU = Setting(
    "FLUID_CPU",
    TEXT,
    "",
    "The instruction set of native code, such as `avx2`: a lower one than this CPU's best "
    "([native.md](native.md)).",
)
FLUID_DTYPE = Setting(
    "FLUID_DTYPE",
    optional(choice("bf16", "fp16", "fp32")),
    None,
    "Inference: matrix products, and ops after them, in half precision "
    "([mixed_precision.md](mixed_precision.md)).",
)
FLUID_MEMORY_BUDGET = Setting(
    "FLUID_MEMORY_BUDGET",
    optional(BUDGET),
    None,
    "The maximum of live temporaries: cheap values are computed again rather than kept.",
)
FLUID_MEMORY_LIMIT = Setting(
    "FLUID_MEMORY_LIMIT",
    optional(LIMIT),
    None,
    "The maximum of a step in total: a step that needs more raises MemoryLimitExceeded before "
    "memory is allocated ([security.md](security.md)).",
)
FLUID_DETERMINISTIC = Setting(
    "FLUID_DETERMINISTIC",
    FLAG,
    False,
    "On a GPU, duplicate rows are summed in a fixed order, which takes longer ([gpu.md](gpu.md)).",
)
FLUID_TF32 = Setting(
    "FLUID_TF32",
    FLAG,
    False,
    "On a GPU, float32 products round their operands to TF32, which is faster ([gpu.md](gpu.md)).",
)
FLUID_EXACT_PRODUCTS = Setting(
    "FLUID_EXACT_PRODUCTS",
    FLAG,
    False,
    "On a GPU, float32 products are not computed by bfloat16 parts, which is slower "
    "([gpu.md](gpu.md)).",
)
FLUID_LIBRARIES = Setting(
    "FLUID_LIBRARIES",
    FLAG,
    True,
    "On a GPU, the vendor's library multiplies matrices where it is faster ([gpu.md](gpu.md)).",
)
FLUID_TUNE = Setting(
    "FLUID_TUNE",
    FLAG,
    False,
    "The tiles of a program's matrix products are timed on its GPU, once, and stored in the cache "
    "([gpu.md](gpu.md)).",
)
FLUID_CUDA_GRAPH = Setting(
    "FLUID_CUDA_GRAPH",
    FLAG,
    True,
    "On a GPU, steps in which the host takes no part are launched as one CUDA graph "
    "([gpu.md](gpu.md)).",
)
FLUID_COMPRESS = Setting(
    "FLUID_COMPRESS",
    optional(choice("fp16", "bf16")),
    None,
    "Gradients are cast to half precision for all-reduces ([distributed.md](distributed.md)).",
)
FLUID_GPU = Setting(
    "FLUID_GPU",
    optional(choice("ptx:80", "ptx:90")),
    None,
    "GPU programs run on the PTX machine of this compute capability, without a GPU "
    "([ptx.md](ptx.md)).",
)
FLUID_ORDER = Setting(
    "FLUID_ORDER",
    optional(NUMBER),
    None,
    "The PTX machine: a seed from which the order of blocks and branches is drawn.",
)
FLUID_PERTURB = Setting(
    "FLUID_PERTURB",
    FLAG,
    False,
    "The PTX machine: results of approximate instructions are changed by up to their error.",
)
FLUID_CACHE = Setting(
    "FLUID_CACHE",
    optional(FOLDER),
    None,
    "The folder of compiled code; by default `fluid` in the user's cache folder.",
)
FLUID_CACHE_SIZE = Setting(
    "FLUID_CACHE_SIZE",
    BYTES,
    2_000_000_000,
    "The maximum size of the folder for each kind of code; 0 turns it off.",
)
FLUID_DISABLE = Setting(
    "FLUID_DISABLE",
    NAMES,
    (),
    "Passes that do not run ([passes.md](passes.md)).",
)
FLUID_PASSES = Setting(
    "FLUID_PASSES",
    NAMES,
    (),
    "Passes of your own to run, at the positions where they were registered "
    "([cookbook.md](cookbook.md)).",
)
FLUID_CHECK = Setting(
    "FLUID_CHECK",
    choice("0", "1", "2"),
    "0",
    "1: freed memory is filled with NaN, and kernels check the bounds of every access. 2: freed "
    "memory is filled, and numbers are compared before and after each pass, and those of each "
    "native step with the reference implementation ([passes.md](passes.md)).",
)
FLUID_DUMP = Setting(
    "FLUID_DUMP",
    optional(FOLDER),
    None,
    "The folder in which each compilation writes its stages ([inspect.md](inspect.md)).",
)
FLUID_TRACEBACK = Setting(
    "FLUID_TRACEBACK",
    TEXT,
    "",
    "`full`: tracebacks show all frames, not only those of the script.",
)
FLUID_MODEL_FILES = Setting(
    "FLUID_MODEL_FILES",
    optional(FOLDER),
    None,
    "The folder that decoded programs may read and write ([old_scripts.md](old_scripts.md)).",
)
FLUID_ENDPOINT_FD = Setting(
    "FLUID_ENDPOINT_FD",
    optional(NUMBER),
    None,
    "The descriptor of a socket that listens on this process's endpoint already, so that no other "
    "process takes the port.",
    "`fluid launch`",
)
FLUID_RUN_OPTIONS = Setting(
    "FLUID_RUN_OPTIONS",
    NAMES,
    (),
    "The options of `fluid run`, `cpu` and `force`, for processes that the script starts "
    "([old_scripts.md](old_scripts.md)).",
    "`fluid run`",
)
FLUID_RUN_PYTHON = Setting(
    "FLUID_RUN_PYTHON",
    TEXT,
    "",
    "The interpreter that the command `python` starts in those processes.",
    "`fluid run`",
)
FLUID_RUN_INTERPRETER = Setting(
    "FLUID_RUN_INTERPRETER",
    TEXT,
    "",
    "The version and the folder of that interpreter: others are left as they are.",
    "`fluid run`",
)
