"""Passes that remove, fold and merge ops.

Read `eliminate_dead`, `remove_identities` and `remove_dropout` (removal), `fold_constants`
(constant folding), `merge_common` (common subexpressions), `merge_reshapes` and `merge_transposes`;
`value_replacement` is their shared rule for replacing one var by another.
"""
