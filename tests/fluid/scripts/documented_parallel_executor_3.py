import paddle.fluid as fluid
import numpy
import os

use_cuda = True
# 注意：如果你使用CPU运行程序，需要具体设置CPU_NUM，
# 否则fluid会把逻辑核的所有数目设为CPU_NUM，
# 在这种情况下，输入的batch size应大于CPU_NUM，
# 否则程序会异常中断。
if not use_cuda:
    os.environ["CPU_NUM"] = str(2)

train_program = fluid.Program()
startup_program = fluid.Program()
with fluid.program_guard(train_program, startup_program):
    data = fluid.layers.data(name="X", shape=[1], dtype="float32")
    hidden = fluid.layers.fc(input=data, size=10)
    loss = fluid.layers.mean(hidden)

place = fluid.CUDAPlace(0) if use_cuda else fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(startup_program)

parallel_exe = fluid.ParallelExecutor(
    use_cuda=use_cuda, main_program=train_program, loss_name=loss.name
)

x = numpy.random.random(size=(10, 1)).astype("float32")
(loss_data,) = parallel_exe.run(feed={"X": x}, fetch_list=[loss.name])

parallel_exe.drop_local_exe_scopes()
