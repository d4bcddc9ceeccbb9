"""The modules that scripts of release 1.8 import besides `paddle.fluid`: batch, reader, data sets.

`fluid.install_as_paddle` loads this folder as the package `paddle`, with `paddle.fluid`. The
modules use relative imports, so that each is loaded once, under either name.
"""

from typing import NoReturn

from . import compat, complex, dataset, reader, utils, version
from .batch import batch
from .version import full_version as __version__

__all__ = ["__version__", "batch", "compat", "complex", "dataset", "reader", "utils", "version"]


def enable_static() -> None:
    """Do nothing, since programs are static from the start.

    Release 1.8.5 has no such function. Scripts that were kept running with `fluid` of 2.0 to 2.4
    call it first.
    """


def __getattr__(name: str) -> NoReturn:
    """Raise AttributeError that says which release this is."""
    raise AttributeError(
        f"module 'paddle' has no attribute {name!r}: this is release {__version__}, with "
        "paddle.fluid, batch, reader, dataset and distributed; names of 2.x are not provided",
        name=name,
    )
