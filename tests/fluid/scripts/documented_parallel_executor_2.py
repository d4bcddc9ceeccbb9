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
    fluid.optimizer.SGD(learning_rate=0.01).minimize(loss)

    exe.run(startup_program)

    train_exe = fluid.ParallelExecutor(
        use_cuda=use_cuda, main_program=train_program, loss_name=loss.name
    )
# 如果feed参数是dict类型:
# 图像会被split到设备中。假设有两个设备，那么每个设备将会处理形为 (5, 1)的图像
x = numpy.random.random(size=(10, 1)).astype("float32")
(loss_data,) = train_exe.run(feed={"X": x}, fetch_list=[loss.name])

# 如果feed参数是list类型:
# 各设备挨个处理列表中的每个元素
# 第一个设备处理形为 (10, 1) 的图像
# 第二个设备处理形为 (9, 1) 的图像
#
# 使用 exe.device_count 得到设备数目
x1 = numpy.random.random(size=(10, 1)).astype("float32")
x2 = numpy.random.random(size=(9, 1)).astype("float32")
(loss_data,) = train_exe.run(feed=[{"X": x1}, {"X": x2}], fetch_list=[loss.name])
