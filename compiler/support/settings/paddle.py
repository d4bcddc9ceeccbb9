"""Variables whose names are those of Paddle 1.8: jobs, devices and FLAGS_*."""

from __future__ import annotations

from typing import Any

from compiler.support.settings.setting import (
    ENDPOINT,
    ENDPOINTS,
    FLAG,
    FOLDER,
    INTEGER,
    NUMBER,
    NUMBERS,
    POSITIVE,
    REAL,
    TEXT,
    Setting,
    SettingKind,
    choice,
    optional,
)

LAUNCHERS = "`fluid launch` and `fluid launch_ps`, or by `fluid run` under torchrun and srun"
SERVER_LAUNCHER = "`fluid launch_ps`"
COLLECTIVE_LAUNCHER = "`fluid launch`, or by `fluid run` under torchrun and srun"

CPU_NUM = Setting(
    "CPU_NUM",
    optional(POSITIVE),
    None,
    "The number of CPU devices of data-parallel runs, by default 1; also the maximum number of "
    "threads of native code ([native.md](native.md)).",
)
PADDLE_TRAINER_ID = Setting(
    "PADDLE_TRAINER_ID",
    SettingKind("this trainer's number, from 0", NUMBER.parse),
    0,
    "This trainer's number.",
    LAUNCHERS,
)
PADDLE_TRAINERS_NUM = Setting(
    "PADDLE_TRAINERS_NUM",
    SettingKind("the number of trainers, from 1", POSITIVE.parse),
    1,
    "The number of trainers.",
    LAUNCHERS,
)
PADDLE_TRAINERS = Setting(
    "PADDLE_TRAINERS",
    SettingKind("addresses of machines with commas between", str),
    "",
    "The machines of a job, for `--use_paddlecloud`, with POD_IP, PADDLE_PORT and the number of "
    "machines in PADDLE_TRAINERS_NUM.",
    "PaddleCloud",
)
DISTRIBUTED_TRAINER_ENDPOINTS = Setting(
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    ENDPOINTS,
    (),
    "The endpoints of all machines of a job, for `--use_paddlecloud`; without it they begin at "
    "PADDLE_PORT.",
    "PaddleCloud",
)
TRAINER_PORTS_NUM = Setting(
    "TRAINER_PORTS_NUM",
    POSITIVE,
    1,
    "The number of ports of each machine, for `--use_paddlecloud`.",
    "PaddleCloud",
)
PADDLE_TRAINER_ENDPOINTS = Setting(
    "PADDLE_TRAINER_ENDPOINTS", ENDPOINTS, (), "The endpoint of each trainer.", LAUNCHERS
)
PADDLE_CURRENT_ENDPOINT = Setting(
    "PADDLE_CURRENT_ENDPOINT",
    SettingKind("one of PADDLE_TRAINER_ENDPOINTS", str),
    "",
    "This trainer's endpoint.",
    COLLECTIVE_LAUNCHER,
)
PADDLE_TRAINING_ROLE = Setting(
    "PADDLE_TRAINING_ROLE",
    choice("TRAINER"),
    "TRAINER",
    "The role in a job without parameter servers.",
    COLLECTIVE_LAUNCHER,
)
TRAINING_ROLE = Setting(
    "TRAINING_ROLE",
    choice("TRAINER", "PSERVER"),
    "TRAINER",
    "The role in a job with parameter servers.",
    SERVER_LAUNCHER,
)
PADDLE_PSERVERS_IP_PORT_LIST = Setting(
    "PADDLE_PSERVERS_IP_PORT_LIST",
    ENDPOINTS,
    (),
    "The endpoint of each parameter server.",
    SERVER_LAUNCHER,
)
PADDLE_PSERVER_ID = Setting(
    "PADDLE_PSERVER_ID",
    SettingKind("this server's number, from 0", NUMBER.parse),
    0,
    "This server's number.",
    SERVER_LAUNCHER,
)
POD_IP = Setting(
    "POD_IP",
    SettingKind("this server's host, as in PADDLE_PSERVERS_IP_PORT_LIST", str),
    "",
    "This server's host.",
    SERVER_LAUNCHER,
)
PADDLE_PORT = Setting(
    "PADDLE_PORT",
    SettingKind("this server's port, as in PADDLE_PSERVERS_IP_PORT_LIST", POSITIVE.parse),
    0,
    "This server's port.",
    SERVER_LAUNCHER,
)
PADDLE_GLOO_ENDPOINT = Setting(
    "PADDLE_GLOO_ENDPOINT",
    SettingKind(
        "the host:port at which all processes meet, on trainer 0's machine", ENDPOINT.parse
    ),
    "",
    "Where all processes meet.",
    SERVER_LAUNCHER,
)
PADDLE_DATASET_HOME = Setting(
    "PADDLE_DATASET_HOME",
    FOLDER,
    "~/.cache/paddle/dataset",
    "The folder of the data sets of `paddle.dataset`; nothing is downloaded.",
)
DISABLE_PLOT = Setting(
    "DISABLE_PLOT", TEXT, "", "`True`: `paddle.utils.plot.Ploter` draws nothing."
)

FLAGS_selected_gpus = Setting(
    "FLAGS_selected_gpus",
    NUMBERS,
    (),
    "The indices of the GPUs that a process uses; by default all visible ones.",
    "`fluid launch`",
)
FLAGS_rpc_deadline = Setting(
    "FLAGS_rpc_deadline",
    SettingKind("a positive number of milliseconds", POSITIVE.parse),
    180_000,
    "Milliseconds until a step that waits for a server or another rank fails, and, with the policy "
    "`wait`, a server that a trainer has never connected to.",
)
FLAGS_rpc_retry_times = Setting("FLAGS_rpc_retry_times", NUMBER, 3, "Stored without effect.")
FLAGS_rpc_send_thread_num = Setting(
    "FLAGS_rpc_send_thread_num",
    POSITIVE,
    12,
    "Calls at once of peers that are no trainer: the sum of this and the next two, at least 16.",
)
FLAGS_rpc_get_thread_num = Setting(
    "FLAGS_rpc_get_thread_num", POSITIVE, 12, "Added to FLAGS_rpc_send_thread_num."
)
FLAGS_rpc_prefetch_thread_num = Setting(
    "FLAGS_rpc_prefetch_thread_num", POSITIVE, 12, "Added to FLAGS_rpc_send_thread_num."
)
FLAGS_communicator_max_merge_var_num = Setting(
    "FLAGS_communicator_max_merge_var_num",
    POSITIVE,
    20,
    "The maximum number of gradients of one variable that are merged; with `fleet`, CPU_NUM.",
)
FLAGS_communicator_send_queue_size = Setting(
    "FLAGS_communicator_send_queue_size",
    POSITIVE,
    20,
    "The maximum number of queued gradients of one variable; with `fleet`, CPU_NUM.",
)
FLAGS_communicator_independent_recv_thread = Setting(
    "FLAGS_communicator_independent_recv_thread", FLAG, True, "Stored without effect."
)
FLAGS_communicator_min_send_grad_num_before_recv = Setting(
    "FLAGS_communicator_min_send_grad_num_before_recv",
    POSITIVE,
    20,
    "Stored without effect.",
)
FLAGS_communicator_thread_pool_size = Setting(
    "FLAGS_communicator_thread_pool_size", POSITIVE, 5, "Stored without effect."
)
FLAGS_communicator_send_wait_times = Setting(
    "FLAGS_communicator_send_wait_times", NUMBER, 5, "Stored without effect."
)
FLAGS_communicator_is_sgd_optimizer = Setting(
    "FLAGS_communicator_is_sgd_optimizer", FLAG, True, "Stored without effect."
)


def _flag(name: str, default: bool | int | float | str, help: str = "") -> Setting[Any]:
    """Declare a flag of `fluid.set_flags`; its kind is that of its default."""
    kinds = {bool: FLAG, int: INTEGER, float: REAL, str: TEXT}
    return Setting(f"FLAGS_{name}", kinds[type(default)], default, help or "Stored without effect.")


FLAGS_check_nan_inf = _flag(
    "check_nan_inf",
    False,
    "A run stops at the first op that computes NaN or infinity, and names op and tensor.",
)
FLAGS_sync_nccl_allreduce = _flag(
    "sync_nccl_allreduce", True, "With `fleet`, sets the number of threads of data-parallel runs."
)

FLAGS: tuple[Setting[Any], ...] = (
    _flag("allocator_strategy", "auto_growth"),
    _flag("benchmark", False),
    FLAGS_check_nan_inf,
    _flag("cpu_deterministic", False),
    _flag("cudnn_batchnorm_spatial_persistent", False),
    _flag("cudnn_deterministic", False),
    _flag("cudnn_exhaustive_search", False),
    _flag("eager_delete_tensor_gb", 0.0),
    _flag("enable_parallel_graph", False),
    _flag("enable_rpc_profiler", False),
    _flag("fraction_of_cpu_memory_to_use", 1.0),
    _flag("fraction_of_gpu_memory_to_use", 0.92),
    _flag("fuse_parameter_groups_size", 1),
    _flag("fuse_parameter_memory_size", -1.0),
    _flag("init_allocated_mem", False),
    _flag("initial_cpu_memory_in_mb", 500),
    _flag("inner_op_parallelism", 0),
    _flag("memory_fraction_of_eager_deletion", 1.0),
    _flag("multiple_of_cupti_buffer_size", 1),
    _flag("paddle_num_threads", 1),
    _flag("pe_profile_fname", ""),
    _flag("print_sub_graph_dir", ""),
    _flag("reader_queue_speed_test_mode", False),
    FLAGS_sync_nccl_allreduce,
    _flag("tracer_profile_fname", "xxgperf"),
    _flag("use_pinned_memory", True),
    _flag("use_system_allocator", False),
)
"""The flags of release 1.8.5 for CPU and GPU that `fluid.set_flags` takes, with their defaults."""
