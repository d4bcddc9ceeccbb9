"""`get_places`, which programs before `ParallelExecutor` asked for devices."""

from __future__ import annotations

from fluid.running.places import CPUPlace, CUDAPlace, cpu_places, cuda_places, is_compiled_with_cuda

__all__ = ["get_places"]


def get_places(
    device_count: int | None = None, device_type: str | None = None
) -> list[CPUPlace | CUDAPlace]:
    """The devices of a type, "CPU" or "CUDA": `device_count` of them, or all.

    Without a type, CUDA devices where there are some. In release 1.8.5 no layer takes what this
    returns any more: `fluid.CompiledProgram(program).with_data_parallel(places=…)` does.
    """
    if device_type not in (None, "", "CPU", "CUDA"):
        raise ValueError(f"device_type is {device_type!r}, expected 'CPU' or 'CUDA'")
    if device_type == "CUDA" or (not device_type and is_compiled_with_cuda()):
        return [*cuda_places(None if device_count is None else range(int(device_count)))]
    return [*cpu_places(None if device_count is None else int(device_count))]
