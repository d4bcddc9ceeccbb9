"""Ops that are excepted where the checkout does not say which: all."""

from white_list import Everything

COMPILE_RUN_OP_WHITE_LIST = Everything()
