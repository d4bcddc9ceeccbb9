"""Variables of launchers, of other libraries and of the system."""

from __future__ import annotations

from compiler.support.settings.setting import (
    FIRST_POSITIVE,
    FLAG,
    FOLDER,
    NUMBER,
    POSITIVE,
    TEXT,
    Setting,
    optional,
)

RANK = Setting("RANK", NUMBER, 0, "This process's number in its job.", "torchrun")
WORLD_SIZE = Setting("WORLD_SIZE", POSITIVE, 1, "The number of processes of the job.", "torchrun")
LOCAL_RANK = Setting("LOCAL_RANK", NUMBER, 0, "Its number on this machine.", "torchrun")
MASTER_ADDR = Setting("MASTER_ADDR", TEXT, "", "The host of the job's store.", "torchrun")
MASTER_PORT = Setting("MASTER_PORT", POSITIVE, 0, "The port of the job's store.", "torchrun")
SLURM_PROCID = Setting("SLURM_PROCID", NUMBER, 0, "This process's number in its job.", "srun")
SLURM_NTASKS = Setting("SLURM_NTASKS", POSITIVE, 1, "The number of processes of the job.", "srun")
SLURM_LOCALID = Setting("SLURM_LOCALID", NUMBER, 0, "Its number on this machine.", "srun")
SLURM_JOB_ID = Setting(
    "SLURM_JOB_ID", NUMBER, 0, "The job's number, which selects the port at which it meets.", "srun"
)
SLURM_JOB_NODELIST = Setting(
    "SLURM_JOB_NODELIST", TEXT, "", "The job's machines, on the first of which it meets.", "srun"
)
OMPI_COMM_WORLD_RANK = Setting(
    "OMPI_COMM_WORLD_RANK", NUMBER, 0, "This process's number.", "mpirun of Open MPI"
)
OMPI_COMM_WORLD_SIZE = Setting(
    "OMPI_COMM_WORLD_SIZE", POSITIVE, 1, "The number of processes.", "mpirun of Open MPI"
)
PMI_RANK = Setting("PMI_RANK", NUMBER, 0, "This process's number.", "mpiexec of MPICH")
PMI_SIZE = Setting("PMI_SIZE", POSITIVE, 1, "The number of processes.", "mpiexec of MPICH")

OMP_NUM_THREADS = Setting(
    "OMP_NUM_THREADS",
    optional(FIRST_POSITIVE),
    None,
    "The maximum number of threads of native code, without CPU_NUM; the threads of NumPy's "
    "products.",
)
OPENBLAS_NUM_THREADS = Setting(
    "OPENBLAS_NUM_THREADS",
    TEXT,
    "",
    "The threads of NumPy's products; without it, small steps use one.",
)
GOTO_NUM_THREADS = Setting("GOTO_NUM_THREADS", TEXT, "", "The same, by its earlier name.")
MALLOC_MMAP_THRESHOLD_ = Setting(
    "MALLOC_MMAP_THRESHOLD_",
    TEXT,
    "",
    "The C allocator's; if it or the next one is set, the allocator stays as it is.",
)
MALLOC_TRIM_THRESHOLD_ = Setting(
    "MALLOC_TRIM_THRESHOLD_",
    TEXT,
    "",
    "The same; without both, blocks of up to 4 MiB are reused and 16 MiB kept.",
)
CUDA_VISIBLE_DEVICES = Setting(
    "CUDA_VISIBLE_DEVICES",
    TEXT,
    "",
    "The GPUs that a process sees; in Triton's interpreter, their number.",
)
TRITON_INTERPRET = Setting(
    "TRITON_INTERPRET",
    FLAG,
    False,
    "Kernels run in Triton's interpreter on the CPU, slowly ([gpu.md](gpu.md)).",
)
TRITON_HOME = Setting("TRITON_HOME", FOLDER, "", "The folder of Triton's files.")
TRITON_CACHE_DIR = Setting(
    "TRITON_CACHE_DIR",
    FOLDER,
    "",
    "The folder of Triton's cache; set to a private one if others can write to it.",
)
GLOO_SOCKET_IFNAME = Setting(
    "GLOO_SOCKET_IFNAME", TEXT, "", "The network interface of collectives on CPUs."
)
GRPC_ENABLE_FORK_SUPPORT = Setting(
    "GRPC_ENABLE_FORK_SUPPORT",
    TEXT,
    "",
    "Set to 0 if it is not set: gRPC's fork handlers abort a child of a thread within a call.",
)
TORCH_CPP_LOG_LEVEL = Setting(
    "TORCH_CPP_LOG_LEVEL", TEXT, "", "Set to ERROR by `fluid launch`, unless it is set."
)
TORCH_DISABLE_SHARE_RDZV_TCP_STORE = Setting(
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", TEXT, "", "Set to 1 by `fluid launch` for its processes."
)
XDG_CACHE_HOME = Setting("XDG_CACHE_HOME", FOLDER, "~/.cache", "The user's cache folder.")
TERM = Setting(
    "TERM", TEXT, "", "The kind of the terminal; one that is `dumb` sees no lines of progress."
)
PATH = Setting(
    "PATH",
    TEXT,
    "",
    "Folders of commands; `fluid run` puts one with `python` first ([old_scripts.md]"
    "(old_scripts.md)).",
)
PYTHONPATH = Setting(
    "PYTHONPATH",
    TEXT,
    "",
    "Folders of Python modules; `fluid run` puts one with a start-up file first.",
)
