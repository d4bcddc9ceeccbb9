"""Steps as commands: sequences of calls of kernels, and steps that repeat those of an equal one."""
