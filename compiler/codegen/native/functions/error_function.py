"""The error function.

In single precision erf(x) = 1 - exp(-x * p(x)), where p is close to a polynomial; in double
precision it is x times a polynomial in x**2 up to 1, and 1 - exp(-x**2) * p(x) beyond. The
polynomials are fitted by Remez' algorithm for the least error of erf.
"""

from __future__ import annotations

from compiler.codegen.native.functions.exponentials import exp, fraction_of_expm1
from compiler.codegen.native.functions.floats import (
    absolute,
    at_most,
    is_below,
    number,
    plus,
    polynomial,
    with_sign,
)
from compiler.codegen.native.llvm_ir import Function, Value

_EXPONENT = (
    *(1.1933092e-06, -2.1354688e-05, 0.00016748131, -0.0007406866, 0.0017993547, -0.0002530617),
    *(-0.019117694, 0.102771275, 0.6366198, 1.1283792),
)
"""-log(1 - erf(x)) / x for x from 0 to 3.95; the relative error of erf is 2**-31."""

_NEAR_0 = (
    *(5.945262190953146e-11, -1.136566618748428e-09, 1.4657879892961192e-08),
    *(-1.6350025229646525e-07, 1.6460972817739361e-06, -1.4925593506949914e-05),
    *(0.00012055331036903577, -0.0008548326978742394, 0.005223977624780872),
    *(-0.026866170645072896, 0.11283791670954857, -0.3761263890318375, 1.1283791670955126),
)
"""erf(x) / x in x**2 for x from 0 to 1; the relative error is 2**-63."""

_COMPLEMENT = (
    *(-1.621163362524056e-06, -1.4599212196386339e-05, -2.7312668712066453e-05),
    *(2.7666203519948072e-05, 0.00017436939450855355, 4.354936284321481e-05),
    *(-0.0009819781250898457, -0.0008471431957726577, 0.006997461763522088),
    *(0.0037328924051636602, -0.07897858101587535, 0.2416581942424582),
    *(-0.42718584741395826, 0.25539567631050575),
)
"""(1 - erf(x)) * exp(x**2) in (x - 2) / (x + 2) for x from 1 to 5.95; the error of erf is 2**-63.
"""


def erf(f: Function, x: Value) -> Value:
    """The error function, within 4 ulp."""
    size = at_most(f, absolute(f, x), 3.95 if x.type.element == "float" else 5.95)
    result = _single(f, size) if x.type.element == "float" else _double(f, size)
    return with_sign(f, result, x)


def _single(f: Function, size: Value) -> Value:
    exponent = f.mul(f.neg(size), polynomial(f, size, _EXPONENT))
    return fraction_of_expm1(f, exponent, 0)


def _double(f: Function, size: Value) -> Value:
    square = f.mul(size, size)
    t = f.div(plus(f, size, -2.0), plus(f, size, 2.0))
    complement = f.mul(exp(f, f.neg(square)), polynomial(f, t, _COMPLEMENT))
    near = f.mul(size, polynomial(f, square, _NEAR_0))
    return f.select(is_below(f, size, 1.0), near, f.sub(number(size, 1.0), complement))
