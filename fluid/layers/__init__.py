"""Layers: functions that append ops to the default main program and return their results."""

from fluid.layers.arrays import *
from fluid.layers.branches import *
from fluid.layers.control_flow import *
from fluid.layers.convolution import *
from fluid.layers.embedding import *
from fluid.layers.host import *
from fluid.layers.indexing import *
from fluid.layers.io import *
from fluid.layers.learning_rate import *
from fluid.layers.loops import *
from fluid.layers.loss import *
from fluid.layers.math import *
from fluid.layers.metric import *
from fluid.layers.nn import *
from fluid.layers.normalization import *
from fluid.layers.ops import *
from fluid.layers.pooling import *
from fluid.layers.random import *
from fluid.layers.readers import *
from fluid.layers.recurrent import *
from fluid.layers.regions import *
from fluid.layers.resize import *
from fluid.layers.rnn import *
from fluid.layers.sampling import *
from fluid.layers.sequence import *
from fluid.layers.shapes import *
from fluid.layers.statistics import *
from fluid.layers.structured import *
from fluid.layers.tensor import *
from fluid.layers.vision import *
from fluid.missing import not_yet

__getattr__ = not_yet(__name__, globals())
