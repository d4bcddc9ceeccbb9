import paddle.fluid as fluid
import numpy
import os

use_cuda = True
place = fluid.CUDAPlace(0) if use_cuda else fluid.CPUPlace()

# 注意：如果你使用CPU运行程序，需要具体设置CPU_NUM，
# 否则fluid会把逻辑核的所有数目设为CPU_NUM，
# 在这种情况下，输入的batch size应大于CPU_NUM，
# 否则程序会异常中断。
if not use_cuda:
    os.environ["CPU_NUM"] = str(2)

exe = fluid.Executor(place)

train_program = fluid.Program()
startup_program = fluid.Program()
with fluid.program_guard(train_program, startup_program):
    data = fluid.layers.data(name="X", shape=[1], dtype="float32")
    hidden = fluid.layers.fc(input=data, size=10)
    loss = fluid.layers.mean(hidden)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=0.01).minimize(loss)

exe.run(startup_program)

train_exe = fluid.ParallelExecutor(
    use_cuda=use_cuda, main_program=train_program, loss_name=loss.name
)
# 注意：如果此处不设置share_vars_from=train_exe，测试过程中用的参数与训练使用的参数是不一致
test_exe = fluid.ParallelExecutor(
    use_cuda=use_cuda, main_program=test_program, share_vars_from=train_exe
)

train_data = numpy.random.random(size=(10, 1)).astype("float32")
(loss_data,) = train_exe.run(feed={"X": train_data}, fetch_list=[loss.name])

test_data = numpy.random.random(size=(10, 1)).astype("float32")
(loss_data,) = test_exe.run(feed={"X": test_data}, fetch_list=[loss.name])
