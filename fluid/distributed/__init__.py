"""What a program knows of the distributed job that it is part of, as plain data.

`sharding` is the plan of a job with servers and `placement` where its variables lie; `job` has a
class for each kind of program in a job, and `paddle_names` the attributes under which scripts of
Paddle read them. `fluid.transpiler` creates them all.
"""
