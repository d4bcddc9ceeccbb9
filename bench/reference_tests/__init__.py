"""The reference's own operator tests, run on this package from a checkout that the user names.

`running` starts a process for each file, `child` runs the tests there, `reasons` sorts what they
skip and why they fail, `report` prints the counts. What the tests import of their own folder and
what reaches into the native library is replaced: `modules/` has `op_test` and `testsuite`, over
`one_op` (a program of one op) and `gradients` (differences beside gradients); `defaults/` has the
lists that are used where the checkout has none. Nothing of the reference is kept here.
"""
