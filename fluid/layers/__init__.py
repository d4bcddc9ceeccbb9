"""Layers: functions that append ops to the default main program and return their results."""

from fluid.atomic import checked_all
from fluid.layers import collective as collective
from fluid.layers import device as device
from fluid.layers import files as files
from fluid.layers import layer_functions as layer_functions
from fluid.layers.activation import *
from fluid.layers.arrays import *
from fluid.layers.branches import *
from fluid.layers.control_flow import *
from fluid.layers.convolution import *
from fluid.layers.detection import *
from fluid.layers.distributions import *
from fluid.layers.host import *
from fluid.layers.indexing import *
from fluid.layers.io import *
from fluid.layers.learning_rate import *
from fluid.layers.linalg import *
from fluid.layers.lookup import *
from fluid.layers.loops import *
from fluid.layers.loss import *
from fluid.layers.math import *
from fluid.layers.metric import *
from fluid.layers.nn import *
from fluid.layers.normalization import *
from fluid.layers.ops import *
from fluid.layers.order import *
from fluid.layers.pooling import *
from fluid.layers.proposals import *
from fluid.layers.random import *
from fluid.layers.readers import *
from fluid.layers.recommendation import *
from fluid.layers.recurrent import *
from fluid.layers.reductions import *
from fluid.layers.regions import *
from fluid.layers.resize import *
from fluid.layers.rnn import *
from fluid.layers.sampling import *
from fluid.layers.sequence import *
from fluid.layers.shapes import *
from fluid.layers.ssd import *
from fluid.layers.statistics import *
from fluid.layers.structured import *
from fluid.layers.tensor import *
from fluid.layers.vision import *
from fluid.missing import not_yet

globals().update(checked_all(globals()))

__getattr__ = not_yet(__name__, globals())
