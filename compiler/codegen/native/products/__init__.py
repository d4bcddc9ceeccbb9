"""Matrix products and convolutions of the native target, from one generator of register tiles.

    steps = matmul(AVX512, F32, (), m, k, n, epilogue=bias(F32, 2), constant=True)
    steps = convolution(AVX512, F32, Convolution(…), epilogue=…, constant=True)
    steps = image_gradient(AVX512, F32, Convolution(…))
    steps = filter_gradient(AVX512, F32, Convolution(…))

Each returns `Steps`: calls in order, `prepare` calls that depend on constant weights alone (to be
run once), and the scratch arrays that they share, by name and elements (of the product's type).
A `Call` is a `NativeKernel` and what its slots hold, in order: names of operands or scratch (str)
and sizes (int, or a Dim that is evaluated at bind time). All elements are of one type, F32 or F64,
but what an `Epilogue` reads and writes. Sizes may be open; kernels that pack and pad serve all
sizes, so that their names repeat.

| function | operands | scratch |
|---|---|---|
| `matmul` | a, b, out | packed, if b is packed |
| `convolution` | input, filter, out | packed; padded, if the input is padded |
| `image_gradient` | d_out, filter, out | packed0, …; padded, if d_out is padded |
| `filter_gradient` | input, d_out, out | parts; packed; padded, as needed |

An `Epilogue` adds operands: arrays with a stride for each axis of the output, 0 where broadcast.
Its `finish` gets one vector of sums and its `ResultAddresses` (`place.load(name)` is that operand's
vector); it returns the vectors to store, one for each of `outputs`. An output may overlap with no
operand but one that the epilogue reads at the same place.

`Contraction` describes all of them; `contraction_kernel` makes the loops around `Microkernel`, or
around `OneColumn` where there is one column. `tiles` chooses how many rows and columns a tile has,
`prefetching` what it fetches for the next one.
"""

from compiler.codegen.native.products.axes import Axis, EpilogueOperand, contiguous
from compiler.codegen.native.products.contraction import Call, Contraction, Steps
from compiler.codegen.native.products.convolution import Convolution, convolution
from compiler.codegen.native.products.epilogue import Epilogue, bias
from compiler.codegen.native.products.filter_gradient import filter_gradient
from compiler.codegen.native.products.image_gradient import image_gradient
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.products.place import ResultAddresses

__all__ = [
    "Axis",
    "Call",
    "Contraction",
    "Convolution",
    "Epilogue",
    "EpilogueOperand",
    "ResultAddresses",
    "Steps",
    "bias",
    "contiguous",
    "convolution",
    "filter_gradient",
    "image_gradient",
    "matmul",
]
