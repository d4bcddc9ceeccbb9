"""The `__model__` files of Paddle 1.x and `.pdmodel` files of 2.x, read and written as programs.

Read in this order: `program_desc` (load and dump), `protobuf` (the wire format), `schema` (the
messages), `attributes` (attribute types), `grad_op_attributes` (attributes that 1.8.5 requires of
gradient ops), `op_upgrades` (rules for ops of later releases).
"""
