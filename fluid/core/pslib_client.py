"""`core.Fleet`: the client of pslib's servers, which release 1.8.5 is built without."""

from __future__ import annotations

import warnings
from collections.abc import Callable

__all__ = ["Fleet"]

_NOTHING = (
    "cache_shuffle clear_model clear_one_table client_flush confirm "
    "create_client2client_connection finalize_worker gather_clients gather_servers init_model "
    "init_server init_worker load_from_paddle_model load_model load_model_one_table "
    "load_table_with_whitelist print_table_stat pull_dense push_dense revert save_model "
    "save_model_one_table save_model_one_table_with_prefix set_client2client_config "
    "set_pull_local_thread_num shrink_dense_table shrink_sparse_table stop_server"
).split()
_RESULTS: dict[str, object] = {
    **dict.fromkeys(_NOTHING),
    **dict.fromkeys("copy_table copy_table_by_feasign run_server".split(), 0),
    **dict.fromkeys("save_cache save_model_with_whitelist".split(), -1),
    "get_cache_threshold": 0.0,
    "get_clients_info": (),
}
"""What each method returns without pslib."""


class Fleet:
    """The client of pslib's servers, which do not exist here: each method warns and does nothing.

    Release 1.8.5 does the same where it is built without pslib.
    """

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name not in _RESULTS:
            raise AttributeError(f"core.Fleet has no method {name!r}")

        def without_pslib(*args: object) -> object:
            warnings.warn(f"core.Fleet.{name} does nothing without pslib", stacklevel=2)
            return list[int]() if name == "get_clients_info" else _RESULTS[name]

        return without_pslib

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_RESULTS})
