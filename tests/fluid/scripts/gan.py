"""A script as people wrote them for Paddle 1.8: a GAN with programs and optimizers of its own."""

import json

import numpy as np
import paddle.fluid as fluid

NOISE = 4


def named(name):
    return {
        "param_attr": fluid.ParamAttr(name=name + "_w"),
        "bias_attr": fluid.ParamAttr(name=name + "_b"),
    }


def bn(x, name, act=None):
    return fluid.layers.batch_norm(
        x,
        act=act,
        moving_mean_name=name + "_mean",
        moving_variance_name=name + "_variance",
        **named(name),
    )


def generator(z):
    y = bn(fluid.layers.fc(z, 4 * 4 * 4, **named("g_fc")), "g_bn", act="relu")
    y = fluid.layers.reshape(y, shape=[-1, 4, 4, 4])
    return fluid.layers.conv2d_transpose(
        input=y,
        num_filters=1,
        output_size=[8, 8],
        filter_size=3,
        stride=2,
        padding=1,
        act="tanh",
        **named("g_up"),
    )


def discriminator(images):
    y = fluid.layers.conv2d(images, 4, 3, stride=2, padding=1, **named("d_conv1"))
    y = fluid.layers.leaky_relu(y, alpha=0.2)
    y = fluid.layers.conv2d(y, 6, 3, stride=2, padding=1, **named("d_conv2"))
    y = fluid.layers.leaky_relu(bn(y, "d_bn"), alpha=0.2)
    return fluid.layers.fc(y, 1, **named("d_fc"))


def cost(logit, value):
    label = fluid.layers.fill_constant_batch_size_like(
        logit, dtype="float32", shape=[-1, 1], value=value
    )
    return fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(x=logit, label=label))


d_program, dg_program = fluid.Program(), fluid.Program()
with fluid.program_guard(d_program), fluid.unique_name.guard("D"):
    img = fluid.layers.data(name="img", shape=[1, 8, 8], dtype="float32")
    fake = fluid.layers.data(name="fake", shape=[1, 8, 8], dtype="float32")
    d_loss = cost(discriminator(img), 1.0) + cost(discriminator(fake), 0.0)
    d_params = [p.name for p in d_program.global_block().all_parameters()]
with fluid.program_guard(dg_program), fluid.unique_name.guard("G"):
    noise = fluid.layers.data(name="noise", shape=[NOISE], dtype="float32")
    g_img = generator(noise)
    g_program = dg_program.clone()
    g_program_test = dg_program.clone(for_test=True)
    g_params = [p.name for p in g_program.global_block().all_parameters()]
    dg_loss = cost(discriminator(g_img), 1.0)
with fluid.program_guard(d_program):
    fluid.optimizer.Adam(learning_rate=0.01, beta1=0.5, name="opt_d").minimize(loss=d_loss)
with fluid.program_guard(dg_program):
    fluid.optimizer.RMSProp(learning_rate=0.01).minimize(loss=dg_loss, parameter_list=g_params)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(11)
for program in (d_program, dg_program):
    for param in program.all_parameters():
        if not param.trainable:
            continue
        value = rng.uniform(-0.4, 0.4, param.shape).astype("float32")
        fluid.global_scope().find_var(param.name).get_tensor().set(value, fluid.CPUPlace())

told = []
for step in range(3):
    real = np.tanh(rng.randn(5, 1, 8, 8)).astype("float32")
    z = rng.uniform(-1, 1, (5, NOISE)).astype("float32")
    (made,) = exe.run(g_program, feed={"noise": z}, fetch_list=[g_img])
    (lost,) = exe.run(d_program, feed={"img": real, "fake": made}, fetch_list=[d_loss])
    told += [float(np.abs(made).mean()), float(lost)]
    for _ in range(2):
        (lost,) = exe.run(dg_program, feed={"noise": z}, fetch_list=[dg_loss])
        told.append(float(lost))
(made,) = exe.run(g_program_test, feed={"noise": z}, fetch_list=[g_img])
told.append(float(np.abs(made).mean()))
print(len(d_params), len(g_params))
print(json.dumps(told))
