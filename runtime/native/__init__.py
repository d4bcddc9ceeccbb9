"""Native code on the CPU: LLVM IR to machine code in memory, and calls of it.

Read in this order: `sequence` (NativeCode, what generated modules call), `object_cache` and `build`
(IR text to object files, by llvmlite), `elf`, `relocate` and `memory` (object files to memory),
`executor` (the compiled executor), `threads` (the thread pool), `bounds` (checks of accesses).
"""
