"""The native target: machine code for CPUs, generated as LLVM IR."""
