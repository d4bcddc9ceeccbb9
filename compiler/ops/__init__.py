"""The ops of fluid, a file for each family and a class for each op.

Importing this package fills the registry.
"""

from compiler.ops import activation as activation
from compiler.ops import control as control
from compiler.ops import conv as conv
from compiler.ops import elementwise as elementwise
from compiler.ops import loss as loss
from compiler.ops import matmul as matmul
from compiler.ops import metric as metric
from compiler.ops import norm as norm
from compiler.ops import optimizer as optimizer
from compiler.ops import pool as pool
from compiler.ops import random as random
from compiler.ops import reduce as reduce
from compiler.ops import tensor as tensor
