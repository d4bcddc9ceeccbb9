"""Cost models: bytes, flops and minimum time of plans, and the limits of GPUs.

Read `gpu_limits` (data sheets), `plan_cost` (the cost of a plan), then `stage_costs` (the cost
after each pass).
"""
