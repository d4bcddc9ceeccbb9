"""`GeoSgdTranspiler`: the programs of a Geo-SGD job."""

from __future__ import annotations

from copy import copy

from fluid.framework import Program
from fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = ["GeoSgdTranspiler"]


class GeoSgdTranspiler(DistributeTranspiler):
    """A `DistributeTranspiler` whose trainers update locally and exchange differences.

    It is the same as a DistributeTranspiler with `config.geo_sgd_mode = True`.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        geo = DistributeTranspilerConfig() if config is None else copy(config)
        geo.geo_sgd_mode = True
        super().__init__(geo)

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = False,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
        **older: object,
    ) -> None:
        """Rewrite programs as `DistributeTranspiler.transpile` does; `sync_mode` has no effect."""
        super().transpile(
            trainer_id, program, pservers, trainers, False, startup_program, current_endpoint,
            **older,
        )  # fmt: skip
