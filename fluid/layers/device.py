"""`get_places`, used by programs older than `ParallelExecutor`."""

from __future__ import annotations

from fluid.running.places import CPUPlace, CUDAPlace, cpu_places, cuda_places, is_compiled_with_cuda

__all__ = ["get_places"]


def get_places(
    device_count: int | None = None, device_type: str | None = None
) -> list[CPUPlace | CUDAPlace]:
    """Return `device_count` devices of type "CPU" or "CUDA", or all of them.

    Without a type: CUDA devices if available. In release 1.8.5 no layer takes this result any more;
    use `fluid.CompiledProgram(program).with_data_parallel(places=…)`.
    """
    if device_type not in (None, "", "CPU", "CUDA"):
        raise ValueError(f"device_type is {device_type!r}, expected 'CPU' or 'CUDA'")
    if device_type == "CUDA" or (not device_type and is_compiled_with_cuda()):
        return [*cuda_places(None if device_count is None else range(int(device_count)))]
    return [*cpu_places(None if device_count is None else int(device_count))]
