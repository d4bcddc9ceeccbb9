"""The reference's own operator tests, run on this package from a checkout that the user names.

`running` starts a process for each file, `child` runs the tests there, `reasons` classifies skips
and failures, `report` prints the counts. Imports of the tests from their own folder and from the
native library are replaced: `modules/` has `op_test` and `testsuite`, over `one_op` (a program of
one op) and `gradients` (numeric gradients); `defaults/` has the lists used if the checkout has
none. Nothing of the reference is kept here.
"""
