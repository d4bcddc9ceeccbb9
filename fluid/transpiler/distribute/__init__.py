"""Programs of a distributed job, made from the program of one process.

In the order to read them: `config` has every setting; `slicing` cuts parameters into blocks;
`updates` reads how a program updates its parameters; `plan` decides, from that alone, which server
holds which block, so that every process computes the same placement without talking; `clipping`
decides where gradients are clipped; `trainer` and `trainer_startup` rewrite what a trainer runs;
`server` and `server_startup` make what a server runs; `tables` has embedding tables that no trainer
holds; `placement` is what saving and loading ask. `nccl2` is a mode without servers; the other one
is `fluid.transpiler.collective`.
"""
