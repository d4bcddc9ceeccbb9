"""Programs of tables in parts: names of release 1.8 that are not needed here."""

from __future__ import annotations

from typing import NoReturn

__all__ = [
    "convert_dist_to_sparse_program",
    "get_inference_model",
    "load_persistables_for_increment",
    "load_persistables_for_inference",
]

_INSTEAD = (
    "tables of servers are saved whole here: use `fleet.save_persistables`, and load them by "
    "`fluid.io.load_persistables` of the program of one process"
)


def convert_dist_to_sparse_program(*args: object, **named: object) -> NoReturn:
    """Raise NotImplementedError, which says how tables are loaded here."""
    raise NotImplementedError(f"convert_dist_to_sparse_program: {_INSTEAD}")


def load_persistables_for_increment(*args: object, **named: object) -> NoReturn:
    """Raise NotImplementedError, which says how tables are loaded here."""
    raise NotImplementedError(f"load_persistables_for_increment: {_INSTEAD}")


def load_persistables_for_inference(*args: object, **named: object) -> NoReturn:
    """Raise NotImplementedError, which says how tables are loaded here."""
    raise NotImplementedError(f"load_persistables_for_inference: {_INSTEAD}")


def get_inference_model(*args: object, **named: object) -> NoReturn:
    """Raise NotImplementedError, which says how tables are loaded here."""
    raise NotImplementedError(f"get_inference_model: {_INSTEAD}")
