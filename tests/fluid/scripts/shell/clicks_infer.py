import json
import sys

import numpy as np
import paddle.fluid as fluid

exe = fluid.Executor(fluid.CPUPlace())
program, names, fetches = fluid.io.load_inference_model(sys.argv[1], exe)
user = fluid.create_lod_tensor(np.array([[1], [5], [9]], "int64"), [[1, 1, 1]], fluid.CPUPlace())
seen = fluid.create_lod_tensor(
    np.array([[3], [7], [1], [30]], "int64"), [[1, 2, 1]], fluid.CPUPlace()
)
result = exe.run(program, feed=dict(zip(names, [user, seen])), fetch_list=fetches)[0]
losses = json.load(open(sys.argv[1] + "/losses"))
print(json.dumps(losses + [float("%.6f" % x) for x in np.array(result)[:, 1:]]))
