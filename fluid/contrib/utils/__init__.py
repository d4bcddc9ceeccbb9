"""Files of Hadoop, under the names of release 1.8."""

from fluid.contrib.utils import hdfs_utils, lookup_table_utils
from fluid.contrib.utils.hdfs_utils import *  # noqa: F403
from fluid.contrib.utils.lookup_table_utils import *  # noqa: F403

__all__: list[str] = []
__all__ += lookup_table_utils.__all__
__all__ += hdfs_utils.__all__
