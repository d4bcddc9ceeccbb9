"""Layers: functions that append ops to the default main program and return their results."""

from fluid.layers.control_flow import *
from fluid.layers.io import *
from fluid.layers.learning_rate import *
from fluid.layers.loss import *
from fluid.layers.metric import *
from fluid.layers.nn import *
from fluid.layers.ops import *
from fluid.layers.tensor import *
from fluid.missing import not_yet

__getattr__ = not_yet(__name__, globals())
