"""Debugging tools: compare programs, bisect passes, reduce test cases, explain a compilation.

Read `difference` (the measure of two arrays) and `values` (every value of an interpreted graph),
then `compare`, `test_case_reduction` and `bisect`, which build on them; `explanation` shows the
passes, the memory and the cost of one compilation.

`reference_steps` evaluates the ops of a native step, and `step_checks` compares them with it while
a module runs.
"""
