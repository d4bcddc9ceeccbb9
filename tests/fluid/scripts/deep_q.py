"""A script as people wrote them for Paddle 1.8, in the way of PARL: a deep Q network.

Layers are objects that keep parameters, a target network copies those of the other, an agent has a
program for each task, all of one scope, and two networks are kept the same by get and set.
"""

import json

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import layers

OBS, ACTIONS = 4, 3


class FC(object):
    def __init__(self, size, act=None, name=None):
        self.size, self.act = size, act
        self.attr = fluid.ParamAttr(name=fluid.unique_name.generate(name + "_w"))
        self.bias = fluid.ParamAttr(name=fluid.unique_name.generate(name + "_b"))

    def __call__(self, x):
        return layers.fc(x, self.size, act=self.act, param_attr=self.attr, bias_attr=self.bias)

    def names(self):
        return [self.attr.name, self.bias.name]


class Model(object):
    def __init__(self, name):
        self.fc1, self.fc2 = FC(8, "relu", name + "_fc"), FC(ACTIONS, None, name + "_fc")

    def value(self, obs):
        return self.fc2(self.fc1(obs))

    def names(self):
        return self.fc1.names() + self.fc2.names()

    def sync_weights_to(self, target, decay=0.0):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()):
            block = program.global_block()
            source_block = fluid.default_main_program().global_block()
            for mine, other in zip(self.names(), target.names()):
                shape = SHAPES[mine]
                a = block.create_parameter(name=mine, shape=shape, dtype="float32")
                b = block.create_parameter(name=other, shape=shape, dtype="float32")
                layers.assign(decay * b + (1 - decay) * a, b)
        return program

    def get_weights(self, scope):
        return [np.array(scope.find_var(name).get_tensor()) for name in self.names()]

    def set_weights(self, scope, values):
        for name, value in zip(self.names(), values):
            scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())


class Agent(object):
    def __init__(self, model, target, rate):
        self.predict_program, self.learn_program = fluid.Program(), fluid.Program()
        startup = fluid.Program()
        with fluid.program_guard(self.predict_program, startup):
            obs = layers.data(name="obs", shape=[OBS], dtype="float32")
            self.value = model.value(obs)
        with fluid.program_guard(self.learn_program, startup):
            obs = layers.data(name="obs", shape=[OBS], dtype="float32")
            action = layers.data(name="act", shape=[1], dtype="int32")
            reward = layers.data(name="reward", shape=[], dtype="float32")
            next_obs = layers.data(name="next_obs", shape=[OBS], dtype="float32")
            terminal = layers.data(name="terminal", shape=[], dtype="bool")
            best = layers.reduce_max(target.value(next_obs), dim=1)
            best.stop_gradient = True
            wanted = reward + (1.0 - layers.cast(terminal, dtype="float32")) * 0.9 * best
            hot = layers.cast(layers.one_hot(action, ACTIONS), dtype="float32")
            actual = layers.reduce_sum(layers.elementwise_mul(hot, model.value(obs)), dim=1)
            self.cost = layers.reduce_mean(layers.square_error_cost(actual, wanted))
            fluid.optimizer.Adam(rate, epsilon=1e-3).minimize(
                self.cost, parameter_list=model.names()
            )
        for param in self.learn_program.all_parameters():
            SHAPES[param.name] = param.shape
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(startup)
        self.sync = model.sync_weights_to(target, decay=0.5)

    def predict(self, obs):
        obs = np.expand_dims(obs, axis=0)
        result = self.exe.run(
            self.predict_program, feed={"obs": obs.astype("float32")}, fetch_list=[self.value]
        )[0]
        return int(np.argmax(np.squeeze(result, axis=0)))

    def learn(self, batch):
        fetch = [self.cost, self.cost.name]
        cost, by_name = self.exe.run(self.learn_program, feed=batch, fetch_list=fetch)
        assert cost == by_name
        return cost


SHAPES = {}
model, target = Model("online"), Model("target")
agent = Agent(model, target, 0.05)
scope = fluid.global_scope()
rng = np.random.RandomState(7)
for each in (model, target):
    each.set_weights(
        scope, [rng.uniform(-0.5, 0.5, SHAPES[n]).astype("float32") for n in each.names()]
    )

told = []
for step in range(8):
    batch = {
        "obs": rng.rand(6, OBS).astype("float32"),
        "act": rng.randint(0, ACTIONS, (6, 1)).astype("int32"),
        "reward": rng.rand(6).astype("float32"),
        "next_obs": rng.rand(6, OBS).astype("float32"),
        "terminal": rng.rand(6) < 0.3,
    }
    told.append(float(agent.learn(batch)))
    told.append(agent.predict(rng.rand(OBS)))
    if step % 3 == 2:
        agent.exe.run(agent.sync)
model.set_weights(scope, target.get_weights(scope))
told += [float(np.abs(value).sum()) for value in model.get_weights(scope)]
assert all((a == b).all() for a, b in zip(model.get_weights(scope), target.get_weights(scope)))
print(json.dumps(told))
