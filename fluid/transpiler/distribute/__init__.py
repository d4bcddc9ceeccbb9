"""The programs of a distributed job, created from the program of one process.

Reading order: `config` has every setting; `slicing` cuts parameters into blocks; `updates` finds
out how a program updates its parameters; `plan` decides, from that alone, which server
holds which block, so that every process computes the same placement without communication;
`clipping` decides where gradients are clipped; `trainer` and `trainer_startup` rewrite a trainer's
programs; `server` and `server_startup` create a server's programs; `tables` has embedding tables
that no trainer holds; `placement` is the information for saving and loading. `nccl2` is a mode
without servers; the other one is `fluid.transpiler.collective`.
"""
