"""Reverse-mode automatic differentiation of programs, as ops appended to the program.

Read in this order: `append_backward` (the interface), `grad_ops` (the gradient ops of one op),
`gradient_sums` (accumulation of partial gradients), `reverse_walk` (the walk over a block and its
sub-blocks), `loop_counters` (values of counters before their increment), `double_grad` (gradients
of gradient ops).
"""
