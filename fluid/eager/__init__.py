"""Eager execution: ops are recorded as they are called and run when a value is needed.

Inside `fluid.dygraph.guard()` the default program is an `EagerProgram`: whatever a layer appends to
it becomes an entry of the current trace. A trace runs, as one compiled program, when a value is
needed: by `numpy()`, a Python branch, an op whose output size depends on data; or before the first
op after `minimize`. So a training step is one program, with the kernels that it would have in
static-graph mode, and no intermediate value of it is copied.

**Values.** A `VarBase` is the user's handle of a `TraceNode`, the value of one variable between two
writes; a variable written again gets a new node, so that gradients read what the forward op read.
Only parameters and other state are written in place: their arrays are in one scope.

**Known traces.** The key of a trace is the sequence of its ops: each op's signature (type,
attributes, dtypes and shapes of inputs), the numbers of the nodes that it reads and writes, and at
the end the nodes whose values are needed. A known trace is one look-up and one run; nothing
is inferred, and no gradient op is created. Recording an op of a known signature creates no
`Operator`. Traces that differ in sizes only share one program with open sizes (`plans`).

**Gradients.** `backward()` adds one entry to the trace, from which `compiler.ir.autodiff` writes
the gradient ops when the trace is compiled. What leads to a loss is remembered in records: the
record of an op refers to the nodes that its gradient reads and to the records that produced its
inputs. A variable refers to its record, so the graph lives as long as a variable that depends on
it, and `backward()` releases it.

**Memory.** A trace refers weakly to the nodes that it computes. When it runs, it returns those that
a live variable holds, and those that the gradient ops of a live graph will read; all others are
temporaries of the compiled program. So if a loss is printed before `backward()`, the values that
the gradients need are kept, as in the reference, and the backward pass is a trace of its own whose
feeds they are: its forward ops are only repeated, in order to be differentiated, and removed again
unless one of their outputs was not kept.

Read in this order: `nodes`, `signatures`, `traces` (recording and running), `trace_programs` (the
program of a trace), `plans` (known traces), `variables` (`VarBase` and `ParamBase`), `programs`
(what layers append to), `mode` (`guard`), `gradients` (`dygraph.grad`), `learning_rates`,
`static_recording` (a layer as a program).
"""
