"""A fake GPU driver: it accepts machine code and interprets the kernel it was compiled from.

Launch arguments are decoded by the parameters of the PTX.
"""

import ctypes
import hashlib
import re
from functools import partial
from types import SimpleNamespace

import torch

DTYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64,
    "i1": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64,
}  # fmt: skip


class Library(SimpleNamespace):
    """The calls of `libcuda.so` that are made; `launches` and `asked` say with what."""

    def __init__(self, package):
        super().__init__(
            cuInit=lambda flags: 0,
            cuDeviceGet=self.device,
            cuDevicePrimaryCtxRetain=lambda context, device: self.give(context, 1),
            cuCtxSetCurrent=self.enter,
            cuModuleLoadData=self.load,
            cuModuleGetFunction=self.find,
            cuFuncSetAttribute=self.attribute,
            cuLaunchKernel=self.launch,
            cuLaunchCooperativeKernel=partial(self.launch, extra=None),
            cuGetErrorString=self.said,
        )
        self.entered, self.launches, self.asked, self.answers = 0, [], [], []
        self.codes, self.functions = {}, {}
        namespace = {"__name__": "module"}
        source = package.module().source
        path = package.folder / "module.py"
        exec(compile(source, str(path), "exec"), namespace)
        self.rows = {}
        for row in package.rows:
            digest = hashlib.sha256(package.read(row.file)).hexdigest()
            text = (package.folder / row.file).with_suffix(".ptx").read_text()
            self.rows.setdefault(digest, (row, namespace[row.kernel], text))
        self.tl = namespace["tl"]

    def give(self, place, value):
        place.contents.value = value
        return 0

    def device(self, place, number):
        return self.give(place, number.value)

    def enter(self, context):
        assert context.value == 1
        self.entered += 1
        return 0

    def load(self, place, code):
        digest = hashlib.sha256(code).hexdigest()
        if digest not in self.rows:
            return 200
        number = len(self.codes) + 1
        self.codes[number] = digest
        return self.give(place, number)

    def find(self, place, module, entry):
        row, _, text = self.rows[self.codes[module.value]]
        if f".entry {entry.decode()}(" not in text or row.entry != entry.decode():
            return 500
        return self.give(place, module.value)

    def attribute(self, function, number, value):
        self.asked.append((self.row(function).kernel, number.value, value.value))
        return 0

    def said(self, answer, place):
        place.contents.value = b"out of luck"
        return 0

    def row(self, function):
        return self.rows[self.codes[function.value]][0]

    def launch(self, function, x, y, z, threads, ty, tz, shared, stream, places, extra):
        if self.answers:
            return self.answers.pop(0)
        row, kernel, text = self.rows[self.codes[function.value]]
        assert (threads, ty, tz, extra) == (int(re.search(r"\.reqntid (\d+)", text)[1]), 1, 1, None)
        head = re.search(r"\.entry \w+\((.*?)\)", text, re.DOTALL)[1]
        sizes = re.findall(r"\.param \.(\w+)", head)
        assert len(places) == len(sizes)
        values = [self.value(place, kind) for place, kind in zip(places, sizes, strict=True)]
        own = len(row.parameters)
        assert values[own:] == [0] * (len(values) - own)
        pairs = zip(values, row.parameters, strict=False)
        arguments = [self.argument(value, kind.partition(":")[0]) for value, kind in pairs]
        constants = {**row.constants, "INDEX": self.tl.int32}
        kernel[(x, y, z)](*arguments, **constants)
        self.launches.append((row.kernel, (x, y, z), shared, stream))
        return 0

    def value(self, place, kind):
        held = {"u64": ctypes.c_uint64, "b64": ctypes.c_uint64, "u32": ctypes.c_uint32}[kind]
        return held.from_address(place).value

    def argument(self, value, kind):
        """What Triton's interpreter takes: numbers, and tensors that begin at an address."""
        if not kind.startswith("*"):
            return value
        memory = (ctypes.c_char * 8).from_address(value)
        return torch.frombuffer(memory, dtype=DTYPES[kind[1:]], count=1)
