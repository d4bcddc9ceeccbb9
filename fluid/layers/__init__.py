"""Layers: functions that append ops to the default main program and return their results."""

from fluid.compat.missing import not_yet
from fluid.layers import collective as collective
from fluid.layers import device as device
from fluid.layers import files as files
from fluid.layers import layer_functions as layer_functions
from fluid.layers.control.arrays import *
from fluid.layers.control.branches import *
from fluid.layers.control.host import *
from fluid.layers.control.loops import *
from fluid.layers.control_flow import *
from fluid.layers.detection import *
from fluid.layers.distributions import *
from fluid.layers.images.convolution import *
from fluid.layers.images.pooling import *
from fluid.layers.images.proposals import *
from fluid.layers.images.regions import *
from fluid.layers.images.resize import *
from fluid.layers.images.ssd import *
from fluid.layers.images.vision import *
from fluid.layers.io import *
from fluid.layers.learning_rate import *
from fluid.layers.loss import *
from fluid.layers.mathematics.activation import *
from fluid.layers.mathematics.arithmetic import *
from fluid.layers.mathematics.indexing import *
from fluid.layers.mathematics.linalg import *
from fluid.layers.mathematics.order import *
from fluid.layers.mathematics.random import *
from fluid.layers.mathematics.reductions import *
from fluid.layers.mathematics.shapes import *
from fluid.layers.metric import *
from fluid.layers.nn import *
from fluid.layers.normalization import *
from fluid.layers.ops import *
from fluid.layers.readers import *
from fluid.layers.recommending.lookup import *
from fluid.layers.recommending.recommendation import *
from fluid.layers.recommending.sampling import *
from fluid.layers.rnn import *
from fluid.layers.sequences.recurrent import *
from fluid.layers.sequences.sequence import *
from fluid.layers.sequences.structured import *
from fluid.layers.statistics import *
from fluid.layers.tensor import *
from fluid.recording.atomic import checked_all

globals().update(checked_all(globals()))

__getattr__ = not_yet(__name__, globals())
