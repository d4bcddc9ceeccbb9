"""Lists of places, as data-parallel runs and data loaders take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from compiler.support.settings.paddle import FLAGS_selected_gpus
from compiler.support.settings.setting import Environ
from compiler.support.settings.systems import CUDA_VISIBLE_DEVICES
from fluid.running.flags import cpu_count
from runtime.device import CPUPlace, CUDAPlace, PlaceKind, expect_place
from runtime.gpu.cuda import gpu_count, interprets

__all__ = ["Place", "cpu_places", "cuda_pinned_places", "cuda_places", "is_compiled_with_cuda"]


def is_compiled_with_cuda() -> bool:
    """False, whatever the machine: scripts that choose their place by it take the CPU.

    Release 1.8.5 returns whether its build has CUDA. Here `CUDAPlace` needs no build; to use a GPU,
    a script passes `CUDAPlace(0)` or `cuda_places()`.
    """
    return False


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """`device_count` CPU places; by default the number in the environment variable `CPU_NUM`.

    If that is not set it is set to 1, with a notice on stderr.

    >>> cpu_places(2)
    [CPUPlace(), CPUPlace()]
    """
    return [CPUPlace()] * (cpu_count() if device_count is None else device_count)


def cuda_places(device_ids: Sequence[int] | int | None = None) -> list[CUDAPlace]:
    """The GPUs with these indices, those of `FLAGS_selected_gpus`, or all visible ones.

    `CUDA_VISIBLE_DEVICES` decides which are visible. With TRITON_INTERPRET=1 there are as many as
    it lists, or one. Raises AssertionError, as the reference does without CUDA, if there is no GPU.
    """
    if device_ids is None:
        device_ids = selected_gpus()
    if isinstance(device_ids, int):
        device_ids = [device_ids]
    if not device_ids:
        raise AssertionError("cuda_places: Not compiled with CUDA; use fluid.cpu_places()")
    return [CUDAPlace(number) for number in device_ids]


def selected_gpus(environ: Environ = None) -> list[int]:
    """The indices of the GPUs that a run uses by default; [] if there are none.

    >>> selected_gpus({"FLAGS_selected_gpus": "0,2"})
    [0, 2]
    """
    if chosen := FLAGS_selected_gpus.read(environ):
        return list(chosen)
    if interprets():
        return list(range(len(CUDA_VISIBLE_DEVICES.text(environ).split(","))))
    return list(range(gpu_count()))


def cuda_pinned_places(device_count: int | None = None) -> NoReturn:
    """Raises AssertionError, as the reference does where `is_compiled_with_cuda()` is false."""
    raise AssertionError("cuda_pinned_places: Not compiled with CUDA; use fluid.cpu_places()")


class Place:
    """A place of any kind, set with `set_place`; initially a CUDA device.

    Scripts use it for the device of a tensor: `place.set_place(tensor._place())`.
    """

    def __init__(self) -> None:
        self._place: PlaceKind = CUDAPlace(0)

    def set_place(self, place: Place | PlaceKind) -> None:
        """Set the place. Raises TypeError for anything else."""
        core_place = place._place if isinstance(place, Place) else place
        expect_place(core_place)
        self._place = core_place

    def __getattr__(self, name: str) -> object:
        """Forward attribute access to the place."""
        return getattr(vars(self)["_place"], name)
