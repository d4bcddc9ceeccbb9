"""`op_test` as operator tests of release 1.8 import it, over programs that any fluid can run."""

from __future__ import annotations

import random
import struct
import unittest

import numpy as np
import paddle.fluid as fluid
from testsuite import append_input_output, append_loss_ops, create_op, set_input
from white_list import compile_vs_runtime_white_list, op_threshold_white_list

from tools.verify.reference_tests.gradients import LIMIT, STEP, expect_close, numeric_gradient
from tools.verify.reference_tests.one_op import OneOp, parted, variables

__all__ = [
    "OpTest",
    "append_input_output",
    "append_loss_ops",
    "convert_float_to_uint16",
    "create_op",
    "get_numeric_gradient",
    "np_dtype_to_fluid_dtype",
    "randomize_probability",
    "set_input",
    "skip_check_grad_ci",
]

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Names of dtypes, that of a test first: its inputs decide."""


class OpTest(unittest.TestCase):
    """A test of one op: `setUp` sets `op_type`, `inputs`, `outputs` and `attrs`."""

    dtype = None
    outputs = {}  # noqa: RUF012  tests set it, and may not

    @classmethod
    def setUpClass(cls):
        """Seed the random numbers of inputs."""
        cls._states = np.random.get_state(), random.getstate()
        np.random.seed(123)
        random.seed(124)

    @classmethod
    def tearDownClass(cls):
        """Restore the previous state of random numbers."""
        np.random.set_state(cls._states[0])
        random.setstate(cls._states[1])

    @staticmethod
    def np_dtype_to_fluid_dtype(input):
        """Return an array unchanged: every NumPy dtype that tests use exists in fluid."""
        return input

    np_value_to_fluid_value = np_dtype_to_fluid_dtype

    def _set_op_type(self, op_type):
        self.op_type = op_type

    def _get_places(self):
        """The CPU; none for tests of float16, which the reference runs on GPUs only."""
        return [] if self.dtype == np.float16 else [fluid.CPUPlace()]

    def is_mkldnn_op(self):
        """Whether the test requires MKL-DNN kernels."""
        return bool((getattr(self, "attrs", None) or {}).get("use_mkldnn", False))

    def one_op(self):
        """The op as a program; skips tests that require MKL-DNN."""
        if self.is_mkldnn_op():
            self.skipTest("asks for MKL-DNN")
        return OneOp(self.op_type, getattr(self, "inputs", {}), self.outputs, self.given_attrs())

    def given_attrs(self):
        """The attributes, with dtypes as numbers."""
        attrs = dict(getattr(self, "attrs", None) or {})
        return {name: number(value) for name, value in attrs.items()}

    def infer_dtype_from_inputs_outputs(self, inputs, outputs):
        """Set `dtype` to the first of DTYPES among the inputs; unchanged if there is none.

        Expected outputs may have been computed in float64, which says nothing of the op's.
        """
        dtypes = {np.asarray(parted(value)[0]).dtype.name for _, value in variables(inputs)}
        for name in DTYPES:
            if name in dtypes:
                self.dtype = np.dtype(name).type
                return

    def _is_strict(self, exceptions):
        """Whether the tolerances of float64 apply to this op."""
        self.infer_dtype_from_inputs_outputs(getattr(self, "inputs", {}), self.outputs)
        return self.dtype == np.float64 and self.op_type not in exceptions

    def calc_output(self, place):
        """The outputs of `fetch_list`, else those that the test or the op names, as LoDTensors."""
        return self._calc_output(place)[0]

    def _calc_output(self, place, parallel=False, no_check_set=None, **others):
        op = self.one_op()
        checked = {n: v for n, v in self.outputs.items() if n not in (no_check_set or ())}
        fetched = list(getattr(self, "fetch_list", ())) or [name for name, _ in variables(checked)]
        fetched = fetched or op.written()
        return op.run(fetched), fetched

    def check_output_customized(self, checker):
        """Call `checker` with the outputs as arrays, the shortest first."""
        for place in self._get_places():
            arrays = [np.array(output) for output in self.calc_output(place)]
            checker(sorted(arrays, key=len))

    def check_output(
        self, atol=1e-5, no_check_set=None, equal_nan=False, check_dygraph=True, inplace_atol=None
    ):
        """Compare every output that the test defines, and its LoD."""
        for place in self._get_places():
            self.check_output_with_place(place, atol, no_check_set, equal_nan)

    def check_output_with_place(
        self,
        place,
        atol=0,
        no_check_set=None,
        equal_nan=False,
        check_dygraph=True,
        inplace_atol=None,
    ):
        """The same, always on the CPU."""
        op = self.one_op()
        left_out = set(no_check_set or ())
        wanted = {slot: value for slot, value in self.outputs.items() if slot not in left_out}
        expected = [(n, v) for n, v in variables(wanted) if n not in left_out]
        if self._is_strict(op_threshold_white_list.NEED_FIX_FP64_CHECK_OUTPUT_THRESHOLD_OP_LIST):
            atol = 0
        outputs_found = op.run([name for name, _ in expected] or op.written()[:1])
        for index, (name, value) in enumerate(expected):
            self._expect_output(name, outputs_found[index], value, atol, equal_nan)
        if self.op_type not in compile_vs_runtime_white_list.COMPILE_RUN_OP_WHITE_LIST:
            self._expect_recorded_levels(op, [name for name, _ in expected], outputs_found)

    def _expect_recorded_levels(self, op, names, outputs_found):
        """Fail unless outputs have as many LoD levels as their variables are recorded with."""
        block = op.program.global_block()
        for name, found in zip(names, outputs_found, strict=False):
            levels = block.var(name).lod_level, len(found.lod()) if hasattr(found, "lod") else 0
            self.assertEqual(*levels, f"the recorded and the actual LoD levels of {name}")

    def _expect_output(self, name, found, value, atol, equal_nan):
        expected, lengths = parted(value)
        got = np.array(found)
        if isinstance(value, tuple) and lengths is not None:
            lod = found.recursive_sequence_lengths()
            self.assertListEqual(lod, [list(level) for level in lengths], "lengths of " + name)
        if not broadcast_together(got, expected):
            self.fail(f"output {name} has the shape {got.shape}, not {expected.shape}")
        if not got.size:
            return
        close = np.isclose(got, expected, atol=atol, equal_nan=equal_nan)
        if not close.all():
            self.fail(f"output {name} {difference(got, expected, close)}")

    def check_grad(
        self,
        inputs_to_check,
        output_names,
        no_grad_set=None,
        numeric_grad_delta=0.005,
        in_place=False,
        max_relative_error=0.005,
        user_defined_grads=None,
        check_dygraph=True,
    ):
        """Compare gradients of the mean of outputs with numeric ones, or with those passed in."""
        for place in self._get_places():
            self.check_grad_with_place(
                place,
                inputs_to_check,
                output_names,
                no_grad_set,
                numeric_grad_delta,
                in_place,
                max_relative_error,
                user_defined_grads,
            )

    def check_grad_with_place(
        self,
        place,
        inputs_to_check,
        output_names,
        no_grad_set=None,
        numeric_grad_delta=0.005,
        in_place=False,
        max_relative_error=0.005,
        user_defined_grads=None,
        check_dygraph=True,
    ):
        """The same, always on the CPU."""
        op = self.one_op()
        outputs = output_names if isinstance(output_names, list) else [output_names]
        strict = self._is_strict(op_threshold_white_list.NEED_FIX_FP64_CHECK_GRAD_THRESHOLD_OP_LIST)
        if strict:
            numeric_grad_delta, max_relative_error = STEP, LIMIT
        gradients = op.gradients(inputs_to_check, outputs, no_grad_set)
        numeric = user_defined_grads or [
            numeric_gradient(op, name, outputs, numeric_grad_delta) for name in inputs_to_check
        ]
        for index, name in enumerate(inputs_to_check):
            expected = np.asarray(numeric[index])
            expect_close(self.op_type, name, expected, gradients[index], max_relative_error, strict)

    def _check_grad_helper(self):
        """Set what the test's class tells of itself once its gradients are checked."""
        self.infer_dtype_from_inputs_outputs(self.inputs, self.outputs)
        kind = type(self)
        kind.op_type, kind.exist_check_grad, kind.dtype = self.op_type, True, self.dtype

    def _get_gradient(
        self, input_to_check, place, output_names, no_grad_set, parallel=False, **others
    ):
        return self.one_op().gradients(list(input_to_check), output_names, no_grad_set)


def broadcast_together(got, expected):
    """Whether an output can be compared with what is expected: both are empty, or one may be
    repeated, as in the reference.
    """
    if not (got.size and expected.size):
        return got.size == expected.size
    try:
        np.broadcast_shapes(got.shape, expected.shape)
    except ValueError:
        return False
    return True


def difference(got, expected, close):
    """The number of elements that differ, and the first one."""
    wrong = np.argwhere(~close)
    at = tuple(map(int, wrong[0])) if wrong.size else ()
    values = np.broadcast_arrays(got, expected)
    return (
        f"differs in {len(wrong)} of {close.size} elements: at {list(at)} it is "
        f"{values[0][at]!s}, expected {values[1][at]!s}"
    )


def number(value):
    """A dtype as its number; other attributes unchanged."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return int(fluid.framework.convert_np_dtype_to_dtype_(value))
    return value


def get_numeric_gradient(
    place, scope, op, inputs, input_to_check, output_names, delta=0.005, in_place=False
):
    """The numeric gradient of an op that `create_op` created."""
    outputs = {
        slot: [(name, np.zeros(0)) for name in pairs] for slot, pairs in op.outputs().items()
    }
    one_op = OneOp(op.type(), inputs, outputs, op.given_attrs)
    return numeric_gradient(one_op, input_to_check, output_names, delta)


def randomize_probability(batch_size, class_num, dtype="float32"):
    """Rows of positive numbers that sum to one: [batch_size, class_num]."""
    rows = np.random.uniform(0.1, 1.0, size=(batch_size, class_num)).astype(dtype)
    return rows / rows.sum(axis=1, keepdims=True)


def skip_check_grad_ci(reason=None):
    """Mark a test class that checks no gradient; `reason` is required."""
    if not isinstance(reason, str):
        raise AssertionError("skip_check_grad_ci needs a reason, a string")

    def mark(kind):
        kind.no_need_check_grad = True
        return kind

    return mark


np_dtype_to_fluid_dtype = OpTest.np_dtype_to_fluid_dtype


def convert_float_to_uint16(values):
    """The upper halves of float32 numbers, which are bfloat16, as uint16."""
    flat = np.asarray(values, np.float32).ravel()
    halves = [struct.unpack("<I", struct.pack("<f", element))[0] >> 16 for element in flat]
    return np.array(halves, np.uint16).reshape(np.shape(values))


def _set_use_system_allocator(value=None):
    """False: there is one allocator."""
    return False


def check_out_dtype(api_fn, in_specs, expect_dtypes, target_index=0, **configs):
    """Call a layer for each dtype, and check the dtype of its result."""
    for index, expected in enumerate(expect_dtypes):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            inputs = []
            for place, spec in enumerate(in_specs):
                dtype = expected if place == target_index else spec[1]
                inputs.append(fluid.data(f"data_{place}_{index}", spec[0], dtype))
            out = api_fn(*inputs, **configs)
        dtype_found = fluid.data_feeder.convert_dtype(out.dtype)
        if dtype_found != expected:
            raise AssertionError(f"the result is {dtype_found}, expected {expected}")
