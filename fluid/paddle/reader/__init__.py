"""`paddle.reader`: readers made of readers."""

from .decorator import *
from .decorator import __all__ as __all__
