"""Small networks in eager mode, which this package and release 1.8.5 train to the same losses.

Each takes the module `fluid`, or `paddle.fluid` of the reference, and returns the losses.
"""

import numpy as np


def set_weights(layer):
    """Set trainable parameters to the same numbers in every release."""
    random = np.random.RandomState(7)
    for param in layer.parameters():
        if param.trainable:
            param.set_value((random.rand(*param.shape) * 0.2 - 0.1).astype("float32"))


def residual_network(fluid):
    """A residual block with batch norms, trained with momentum, decay and a cosine rate; evaluated."""
    layers, dygraph, random = fluid.layers, fluid.dygraph, np.random.RandomState(1)

    class Network(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.first = dygraph.Conv2D(3, 4, 3, padding=1)
            self.conv = dygraph.Conv2D(4, 4, 3, padding=1, bias_attr=False)
            self.norm = dygraph.BatchNorm(4, act="relu")
            self.pool = dygraph.Pool2D(pool_type="avg", global_pooling=True)
            self.out = dygraph.Linear(4, 5)

        def forward(self, x):
            x = self.first(x)
            x = layers.elementwise_add(x, self.norm(self.conv(x)), act="relu")
            return self.out(layers.reshape(self.pool(x), [-1, 4]))

    losses = []
    with dygraph.guard():
        net = Network()
        set_weights(net)
        optimizer = fluid.optimizer.Momentum(
            dygraph.CosineDecay(0.1, 1, 3), 0.9, parameter_list=net.parameters(),
            regularization=fluid.regularizer.L2Decay(1e-2),
        )  # fmt: skip
        for _ in range(3):
            x = dygraph.to_variable(random.rand(4, 3, 6, 6).astype("float32"))
            y = dygraph.to_variable(random.randint(0, 5, (4, 1)).astype("int64"))
            net.train()
            loss = layers.mean(layers.softmax_with_cross_entropy(net(x), y))
            losses.append(loss.numpy().item())
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            net.eval()
            losses.append(layers.reduce_mean(net(x)).numpy().item())
    return losses


def language_model(fluid):
    """A recurrent network with a Python loop over time, with clipped gradients."""
    layers, dygraph, random = fluid.layers, fluid.dygraph, np.random.RandomState(2)
    words, size = 12, 4

    class Network(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.table = dygraph.Embedding([words, size], is_sparse=True)
            self.weight = self.create_parameter([2 * size, 4 * size])
            self.bias = self.create_parameter([4 * size], is_bias=True)
            self.out = dygraph.Linear(size, words)

        def forward(self, x, y, hidden, cell):
            embedded, outputs = self.table(x), []
            for step in range(x.shape[1]):
                both = layers.concat([embedded[:, step], hidden], 1)
                gates = layers.elementwise_add(layers.matmul(both, self.weight), self.bias)
                i, j, f, o = layers.split(gates, num_or_sections=4, dim=-1)
                cell = cell * layers.sigmoid(f + 1.0) + layers.sigmoid(i) * layers.tanh(j)
                hidden = layers.tanh(cell) * layers.sigmoid(o)
                outputs.append(hidden)
            rows = self.out(layers.reshape(layers.stack(outputs, 1), [-1, size]))
            loss = layers.softmax_with_cross_entropy(rows, layers.reshape(y, [-1, 1]))
            return layers.reduce_mean(loss), hidden, cell

    losses = []
    with dygraph.guard():
        net = Network()
        set_weights(net)
        optimizer = fluid.optimizer.SGD(
            0.5, parameter_list=net.parameters(), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)
        )
        hidden = cell = np.zeros([3, size], "float32")
        for _ in range(3):
            x, y = random.randint(0, words, (2, 3, 4)).astype("int64")
            states = map(dygraph.to_variable, (x, y, hidden, cell))
            loss, last_hidden, last_cell = net(*states)
            hidden, cell = last_hidden.numpy(), last_cell.numpy()
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            losses.append(loss.numpy().item())
    return losses


def adversarial_networks(fluid):
    """Two networks with two optimizers."""
    layers, dygraph, random = fluid.layers, fluid.dygraph, np.random.RandomState(3)
    entropy = layers.sigmoid_cross_entropy_with_logits
    losses = []
    with dygraph.guard():
        make = dygraph.Sequential(dygraph.Linear(3, 6, act="relu"), dygraph.Linear(6, 4))
        judge = dygraph.Sequential(dygraph.Linear(4, 6, act="leaky_relu"), dygraph.Linear(6, 1))
        set_weights(make)
        set_weights(judge)
        maker = fluid.optimizer.RMSProp(0.01, parameter_list=make.parameters())
        judging = fluid.optimizer.Adam(0.01, beta1=0.5, parameter_list=judge.parameters())
        for _ in range(3):
            real = dygraph.to_variable(random.rand(5, 4).astype("float32"))
            noise = dygraph.to_variable(random.randn(5, 3).astype("float32"))
            ones, zeros = layers.ones([5, 1], "float32"), layers.zeros([5, 1], "float32")
            fake = make(noise)
            truth, lie = entropy(judge(real), ones), entropy(judge(fake.detach()), zeros)
            judged = layers.mean(truth) + layers.mean(lie)
            judged.backward()
            judging.minimize(judged)
            judge.clear_gradients()
            made = layers.mean(entropy(judge(fake), ones))
            made.backward()
            maker.minimize(made)
            make.clear_gradients()
            judge.clear_gradients()
            losses += [judged.numpy().item(), made.numpy().item()]
    return losses
