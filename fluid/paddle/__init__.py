"""What scripts of release 1.8 import beside `paddle.fluid`: batches, readers, data sets.

`fluid.install_as_paddle` loads this folder as the package `paddle`, and `paddle.fluid` with it. The
modules name each other by relative imports, so that each is loaded once, whatever its name.
"""

from . import compat, dataset, reader, utils, version
from .batch import batch
from .version import full_version as __version__

__all__ = ["__version__", "batch", "compat", "dataset", "reader", "utils", "version"]
