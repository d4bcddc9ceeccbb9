"""A script as people wrote them for Paddle 1.8: pre-training of a small BERT, fed by a py_reader.

The reader declares [-1, 16, 1]; batches are as long as their longest text.
"""

from __future__ import print_function

import argparse
import json

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser(__doc__)
parser.add_argument("--max_seq_len", type=int, default=16)
parser.add_argument("--epoch", type=int, default=1)
args = parser.parse_args()

VOCAB, HIDDEN, HEADS, LAYERS = 30, 16, 2, 2


class BertModel(object):
    def __init__(self, src_ids, position_ids, sentence_ids, input_mask):
        self._dtype = "float32"
        self._emb = "word_embedding"
        self._build(src_ids, position_ids, sentence_ids, input_mask)

    def _embedding(self, ids, rows, name):
        return fluid.layers.embedding(
            input=ids,
            size=[rows, HIDDEN],
            dtype=self._dtype,
            param_attr=fluid.ParamAttr(
                name=name, initializer=fluid.initializer.TruncatedNormal(scale=0.02)
            ),
        )

    def _build(self, src_ids, position_ids, sentence_ids, input_mask):
        emb = self._embedding(src_ids, VOCAB, self._emb)
        emb = emb + self._embedding(position_ids, args.max_seq_len, "pos_embedding")
        emb = emb + self._embedding(sentence_ids, 2, "sent_embedding")
        out = fluid.layers.layer_norm(emb, begin_norm_axis=len(emb.shape) - 1, name="pre_encoder")
        mask = fluid.layers.matmul(x=input_mask, y=input_mask, transpose_y=True)
        mask = fluid.layers.scale(x=mask, scale=10000.0, bias=-1.0, bias_after_scale=False)
        bias = fluid.layers.stack(x=[mask] * HEADS, axis=1)
        bias.stop_gradient = True
        for i in range(LAYERS):
            out = self._layer(out, bias, "encoder_layer_%d" % i)
        self._enc_out = out

    def _heads(self, x):
        return fluid.layers.transpose(
            fluid.layers.reshape(x, shape=[0, 0, HEADS, HIDDEN // HEADS], inplace=True),
            perm=[0, 2, 1, 3],
        )

    def _fc(self, x, size, name, act=None):
        return fluid.layers.fc(
            input=x,
            size=size,
            num_flatten_dims=2,
            act=act,
            param_attr=fluid.ParamAttr(name=name + ".w_0"),
            bias_attr=name + ".b_0",
        )

    def _layer(self, x, bias, name):
        q, k, v = [
            self._heads(self._fc(x, HIDDEN, name + "_" + each))
            for each in ("query", "key", "value")
        ]
        scores = fluid.layers.matmul(
            x=fluid.layers.scale(q, scale=(HIDDEN // HEADS) ** -0.5), y=k, transpose_y=True
        )
        weights = fluid.layers.softmax(scores + bias, use_cudnn=True)
        weights = fluid.layers.dropout(
            weights, dropout_prob=0.0, dropout_implementation="upscale_in_train"
        )
        ctx = fluid.layers.transpose(fluid.layers.matmul(weights, v), perm=[0, 2, 1, 3])
        ctx = fluid.layers.reshape(ctx, shape=[0, 0, HIDDEN], inplace=True)
        x = fluid.layers.layer_norm(
            x + self._fc(ctx, HIDDEN, name + "_out"), begin_norm_axis=2, name=name + "_post_att"
        )
        ffn = self._fc(self._fc(x, HIDDEN * 4, name + "_ffn_0", "gelu"), HIDDEN, name + "_ffn_1")
        return fluid.layers.layer_norm(x + ffn, begin_norm_axis=2, name=name + "_post_ffn")

    def get_pretraining_output(self, mask_label, mask_pos, labels):
        mask_pos = fluid.layers.cast(x=mask_pos, dtype="int32")
        first = fluid.layers.slice(input=self._enc_out, axes=[1], starts=[0], ends=[1])
        pooled = fluid.layers.fc(
            input=first,
            size=HIDDEN,
            act="tanh",
            param_attr="pooled_fc.w_0",
            bias_attr="pooled_fc.b_0",
        )
        flat = fluid.layers.reshape(x=self._enc_out, shape=[-1, HIDDEN])
        masked = fluid.layers.gather(input=flat, index=mask_pos)
        masked = fluid.layers.fc(
            input=masked, size=HIDDEN, act="gelu", param_attr="trans.w_0", bias_attr="trans.b_0"
        )
        bias = fluid.layers.create_parameter(
            shape=[VOCAB],
            dtype=self._dtype,
            attr=fluid.ParamAttr(name="mask_lm_out_fc.b_0"),
            is_bias=True,
        )
        table = fluid.default_main_program().global_block().var(self._emb)
        words = fluid.layers.matmul(x=masked, y=table, transpose_y=True) + bias
        mask_loss = fluid.layers.mean(
            fluid.layers.softmax_with_cross_entropy(logits=words, label=mask_label)
        )
        following = fluid.layers.fc(
            input=pooled, size=2, param_attr="next.w_0", bias_attr="next.b_0"
        )
        loss, probs = fluid.layers.softmax_with_cross_entropy(
            logits=following, label=labels, return_softmax=True
        )
        acc = fluid.layers.accuracy(input=probs, label=labels)
        return acc, mask_loss, mask_loss + fluid.layers.mean(loss)


def create_model(pyreader_name):
    size = args.max_seq_len
    pyreader = fluid.layers.py_reader(
        capacity=8,
        shapes=[
            [-1, size, 1],
            [-1, size, 1],
            [-1, size, 1],
            [-1, size, 1],
            [-1, 1],
            [-1, 1],
            [-1, 1],
        ],
        dtypes=["int64", "int64", "int64", "float32", "int64", "int64", "int64"],
        lod_levels=[0] * 7,
        name=pyreader_name,
        use_double_buffer=True,
    )
    src, pos, sent, mask, mask_label, mask_pos, labels = fluid.layers.read_file(pyreader)
    bert = BertModel(src, pos, sent, mask)
    return (pyreader,) + bert.get_pretraining_output(mask_label, mask_pos, labels)


def data_generator():
    rng = np.random.RandomState(3)
    for _ in range(3):
        lengths = rng.randint(5, 12, 4)
        longest = lengths.max()
        src = np.zeros((4, longest, 1), "int64")
        mask = np.zeros((4, longest, 1), "float32")
        places, masked = [], []
        for i, n in enumerate(lengths):
            src[i, :n, 0] = rng.randint(3, VOCAB, n)
            mask[i, :n] = 1
            place = rng.randint(1, n)
            masked.append(src[i, place, 0])
            src[i, place, 0] = 2
            places.append(i * longest + place)
        pos = np.tile(np.arange(longest).reshape(1, -1, 1), (4, 1, 1)).astype("int64")
        sent = (pos > 3).astype("int64")
        labels = rng.randint(0, 2, (4, 1)).astype("int64")
        yield (
            src,
            pos,
            sent,
            mask,
            np.array(masked).reshape(-1, 1),
            np.array(places).reshape(-1, 1),
            labels,
        )


train_program, startup_prog = fluid.Program(), fluid.Program()
with fluid.program_guard(train_program, startup_prog):
    with fluid.unique_name.guard():
        pyreader, acc, mask_loss, total_loss = create_model("train_reader")
        rate = fluid.layers.noam_decay(1 / (4 * 0.01**2), 4)
        optimizer = fluid.optimizer.Adam(learning_rate=rate)
        fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=1.0))
        _, param_grads = optimizer.minimize(total_loss)
        for param, _ in param_grads:
            if "layer_norm" in param.name or param.name.endswith("b_0"):
                continue
            with (
                param.block.program._optimized_guard([param, _]),
                fluid.framework.name_scope("weight_decay"),
            ):
                fluid.layers.assign(output=param, input=param - param * 0.01 * rate)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup_prog)
rng = np.random.RandomState(0)
for param in train_program.all_parameters():
    if not param.trainable:
        continue
    value = rng.uniform(-0.2, 0.2, param.shape).astype("float32")
    fluid.global_scope().find_var(param.name).get_tensor().set(value, fluid.CPUPlace())

pyreader.decorate_tensor_provider(data_generator)
losses = []
for epoch in range(args.epoch):
    pyreader.start()
    while True:
        try:
            each_acc, each_mask, each_total = exe.run(
                fetch_list=[acc.name, mask_loss.name, total_loss.name], program=train_program
            )
            print("acc %f mask lm %f total %f" % (each_acc, each_mask, each_total))
            losses += [float(each_mask), float(each_total)]
        except fluid.core.EOFException:
            pyreader.reset()
            break
print(json.dumps(losses))
