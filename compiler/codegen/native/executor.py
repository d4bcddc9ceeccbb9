"""The native executor as LLVM IR: `executor.ll`, and what differs between architectures.

It runs sequences of kernels with one call, and shares each kernel's units among threads; see the
head of `executor.ll` for its records. `runtime.native` compiles it like a kernel.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from compiler.codegen.native.machine import Machine

_X86 = """
; Sets FTZ and DAZ: denormal results and operands count as zero. Returns the old mode.
define internal i64 @flush_denormals() nounwind noinline optnone {
entry:
  %place = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %old = load i32, ptr %place, align 4
  %new = or i32 %old, 32832
  store i32 %new, ptr %place, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  %mode = zext i32 %old to i64
  ret i64 %mode
}

define internal void @restore_floats(i64 %mode) nounwind noinline optnone {
entry:
  %place = alloca i32, align 4
  %old = trunc i64 %mode to i32
  store i32 %old, ptr %place, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}

define internal void @relax() nounwind noinline optnone {
entry:
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @ticks() nounwind noinline optnone {
entry:
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
"""

_ARM = """
; Sets FZ: denormal results and operands count as zero. Returns the old mode.
define internal i64 @flush_denormals() nounwind noinline optnone {
entry:
  %old = call i64 @llvm.aarch64.get.fpcr()
  %new = or i64 %old, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %new)
  ret i64 %old
}

define internal void @restore_floats(i64 %mode) nounwind noinline optnone {
entry:
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}

define internal void @relax() nounwind noinline optnone {
entry:
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @ticks() nounwind noinline optnone {
entry:
  %now = call i64 @llvm.read_volatile_register.i64(metadata !0)
  ret i64 %now
}

declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.read_volatile_register.i64(metadata)

!0 = !{!"CNTVCT_EL0"}
"""


@cache
def executor_text(machine: Machine) -> str:
    """The LLVM IR of the executor; defines `run`, `worker`, `stop` and `clock`."""
    common = Path(__file__).with_suffix(".ll").read_text(encoding="utf-8")
    return common + (_X86 if machine.triple.startswith("x86_64") else _ARM)
