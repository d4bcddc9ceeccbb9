"""Ops whose recorded LoD levels may differ from those at run time, as the checkout says: none."""

COMPILE_RUN_OP_WHITE_LIST = ()
