"""The modules that scripts of release 1.8 import besides `paddle.fluid`: batch, reader, data sets.

`fluid.install_as_paddle` loads this folder as the package `paddle`, with `paddle.fluid`. The
modules use relative imports, so that each is loaded once, under either name.
"""

from . import compat, dataset, reader, utils, version
from .batch import batch
from .version import full_version as __version__

__all__ = ["__version__", "batch", "compat", "dataset", "reader", "utils", "version"]
