"""Mutants of native kernels made of loops: units, vectors, reductions, indices, sorted rows."""

from tools.verify.mutations.sizes.mutant import (
    DROPPED,
    NARROW,
    ONE_ELEMENT,
    TWICE,
    UNMASKED,
    WRONG,
    Mutant,
)

FOLDER = "compiler/codegen/native/loops/"
LOOPS, REDUCTIONS, UNITS = FOLDER + "loops.py", FOLDER + "reductions.py", FOLDER + "units.py"
FORMS, TYPES, ADDRESSES = FOLDER + "forms.py", FOLDER + "types.py", FOLDER + "indices.py"
SORTING = "compiler/codegen/native/sorting/"
SPLIT = "compiler/codegen/kernel/split_reductions.py"

BEYOND = "tests/codegen/native/test_beyond_thresholds.py"
PLAIN = "tests/codegen/native/test_loops.py"
ELEMENTS = (f"{BEYOND}::test_elements", f"{BEYOND}::test_elements_of_several_axes")
APART = (f"{BEYOND}::test_lanes_apart",)
INDICES = (f"{BEYOND}::test_indices_that_need_one_bit_more_than_narrow_ones",)
SUMS = (f"{BEYOND}::test_reductions",)
ROWS = (f"{BEYOND}::test_rows",)
PARTS = (f"{BEYOND}::test_split_reductions",)
MOMENTS = (f"{PLAIN}::test_long_reductions_are_split_into_parts",)
SORTED = ("tests/codegen/native/sorting/test_rows.py::test_first_values",)
MANY = (f"{PLAIN}::test_errors_of_sums_do_not_grow_with_their_length",)

MUTANTS = (
    # ---- units of work ----
    Mutant(
        "last unit reads a whole chunk", UNMASKED, "unit_work", LOOPS,
        "if isinstance(axis.chunk, int) and axis.chunk * axis.outer.size == axis.size:",
        "if isinstance(axis.chunk, int):",
        ELEMENTS,
    ),
    Mutant(
        "last unit dropped", DROPPED, "units", UNITS,
        '_chunk", (axis.size + chunk - 1) // chunk)', '_chunk", axis.size // chunk)',
        ELEMENTS,
    ),
    Mutant(
        "last element of a unit dropped", DROPPED, "units", LOOPS,
        'return self.f.select(self.f.compare("slt", left, chunk), left, chunk)',
        'few = self.f.select(self.f.compare("slt", left, chunk), left, chunk)\n'
        "        return self.f.sub(few, constant(I64, 1))",
        ELEMENTS,
    ),
    Mutant(
        "units overlap by one", TWICE, "unit_work", ADDRESSES,
        "factor = factor * atom.chunk", "factor = factor * (atom.chunk - 1)",
        ELEMENTS,
    ),
    Mutant(
        "unit's number not divided", TWICE, "units", FOLDER + "lower.py",
        '            unit = self.f.binary("udiv", unit, size)\n', "",
        ELEMENTS,
    ),
    Mutant(
        "last block of lanes dropped", DROPPED, "lane_block", UNITS,
        '_block", (lane.size + block - 1) // block)', '_block", lane.size // block)',
        APART,
    ),
    # ---- vectors ----
    Mutant(
        "vectors in flight are the same one", TWICE, "pointwise_vectors", LOOPS,
        "steps = [n * max(lanes, 1) for n in range(count)]", "steps = [0 for n in range(count)]",
        ELEMENTS,
    ),
    Mutant(
        "vectors in flight overlap", TWICE, "reduction_vectors", LOOPS,
        "steps = [n * max(lanes, 1) for n in range(count)]",
        "steps = [n * max(lanes - 1, 1) for n in range(count)]",
        SUMS,
    ),
    Mutant(
        "single vectors dropped", DROPPED, "pointwise_vectors", LOOPS,
        "        carried = self._vectors(axis, (done, whole), 1, body, carried)\n"
        "        return self._scalar_rest",
        "        return self._scalar_rest",
        ELEMENTS,
    ),
    Mutant(
        "elements behind vectors dropped", DROPPED, "pointwise_vectors", LOOPS,
        "return self._scalar_rest(axis, whole, stop, body, carried)", "return carried",
        ELEMENTS,
    ),
    Mutant(
        "masked vector dropped", DROPPED, "pointwise_vectors", LOOPS,
        "            if whole == stop:\n", "            if whole <= stop:\n",
        ELEMENTS,
    ),
    Mutant(
        "masked vector of a known size not masked", UNMASKED, "pointwise_vectors", LOOPS,
        "mask = _first_lanes(stop - whole, self.width)", "mask = None",
        ELEMENTS,
    ),
    Mutant(
        "mask of an open size one lane too wide", UNMASKED, "pointwise_vectors", LOOPS,
        'return self.f.compare("slt", lanes, limit)', 'return self.f.compare("sle", lanes, limit)',
        ELEMENTS,
    ),
    Mutant(
        "contiguous lanes read one element", ONE_ELEMENT, "pointwise_vectors", FOLDER + "memory.py",
        "return None, step == 0", "return None, True",
        ELEMENTS,
    ),
    Mutant(
        "lanes apart read one element", ONE_ELEMENT, "lane_block", ADDRESSES,
        "value = lane_numbers(type)", "value = constant(type, 0)",
        APART,
    ),
    # ---- reductions ----
    Mutant(
        "only the first vector of sums", DROPPED, "reduction_vectors", REDUCTIONS,
        "own = totals[number * unroll : (number + 1) * unroll]",
        "own = totals[number * unroll : number * unroll + 1]",
        SUMS,
    ),
    Mutant(
        "odd vector of sums dropped", DROPPED, "reduction_vectors", REDUCTIONS,
        "[self.join(part, a, b) for a, b in pairs] + own[len(own) & ~1 :]",
        "[self.join(part, a, b) for a, b in pairs]",
        (f"{PLAIN}::test_three_vectors_in_flight",),
    ),
    Mutant(
        "lower lanes added twice", TWICE, "reduction_vectors", REDUCTIONS,
        "self.f.shuffle(total, total, range(half, 2 * half))",
        "self.f.shuffle(total, total, range(half))",
        SUMS,
    ),
    Mutant(
        "elements behind vectors not joined", DROPPED, "reduction_vectors", REDUCTIONS,
        "return self.accumulators.join(part, total, singles[number]) if singles else total",
        "return total",
        SUMS,
    ),
    Mutant(
        "masked lanes of a reduction count", UNMASKED, "reduction_vectors", REDUCTIONS,
        'if mask is not None and lanes and part.fn == "reduce":', "if False:",
        SUMS,
    ),
    Mutant(
        "all but the first accumulator dropped", DROPPED, "accumulators", REDUCTIONS,
        "while len(groups) > 1:", "while False:",
        SUMS,
    ),
    Mutant(
        "iterations at once read the first", TWICE, "accumulators", LOOPS,
        "copies = [{**copy, axis: n} for n in range(count) for copy in self.scopes.copies]",
        "copies = [{**copy, axis: 0} for n in range(count) for copy in self.scopes.copies]",
        SUMS,
    ),
    Mutant(
        "single iterations dropped", DROPPED, "accumulators", LOOPS,
        "return self.f.loop_if_any(whole, stop, 1, one, carried)", "return carried",
        SUMS,
    ),
    Mutant(
        "last block of a sum reads on", UNMASKED, "sum_block", LOOPS,
        'end = self.f.select(self.f.compare("slt", end, last), end, last)', "end = end",
        SUMS,
    ),
    Mutant(
        "blocks of a sum not joined", DROPPED, "sum_block", LOOPS,
        "return blocks.join(total, self.f.loop_if_any(first, end, step, each, blocks.start))",
        "return self.f.loop_if_any(first, end, step, each, blocks.start)",
        SUMS,
    ),
    Mutant(
        "blocks of a sum begin from the total", TWICE, "sum_block", LOOPS,
        "self.f.loop_if_any(first, end, step, each, blocks.start))",
        "self.f.loop_if_any(first, end, step, each, total))",
        SUMS,
    ),
    Mutant(
        "an iteration between blocks dropped", DROPPED, "sum_block", LOOPS,
        "return self.f.loop_if_any(0, stop, size, block, carried)",
        "return self.f.loop_if_any(0, stop, size + step, block, carried)",
        SUMS,
    ),
    Mutant(
        "sums in no blocks", WRONG, "sum_block", LOOPS,
        "return self if self.level == level else None", "return None",
        MANY,
    ),
    Mutant(
        "values of long rows read without being kept", DROPPED, "kept_row", FOLDER + "row_cache.py",
        "        return outermost if nbytes <= KEPT_BYTES.value else []",
        "        if nbytes > KEPT_BYTES.value:\n"
        "            self.complete(outermost, loop)\n"
        "            return []\n"
        "        return outermost",
        ROWS,
    ),
    Mutant(
        "kept values are the row's first", ONE_ELEMENT, "kept_row", FOLDER + "row_cache.py",
        "        place = self._element(room, loop, type.nbytes)", "        place = room",
        (f"{PLAIN}::test_softmax",),
    ),
    # ---- split reductions ----
    Mutant(
        "last part of a reduction dropped", DROPPED, "reduction_parts", SPLIT,
        "r, shape = kernel.loop(self.count), (", "r, shape = kernel.loop(self.count - 1), (",
        PARTS,
    ),
    Mutant(
        "parts too short for the axis", DROPPED, "reduction_part_work", FORMS,
        "return (longest.size + count * step - 1) // (count * step) * step",
        "return longest.size // (count * step) * step",
        PARTS,
    ),
    Mutant(
        "parts not in steps of an even size", DROPPED, "reduction_part_step", FORMS,
        "(longest.size + count * step - 1) // (count * step) * step",
        "(longest.size + count * step - 1) // (count * step) * step - step + 1",
        PARTS,
    ),
    Mutant(
        "parts behind the end of the axis read on", UNMASKED, "reduction_part_work", LOOPS,
        'select(self.f.compare("slt", left, constant(I64, 0)), constant(I64, 0), left)',
        'select(self.f.compare("slt", left, left), left, left)',
        (f"{PLAIN}::test_parts_of_an_open_reduction_may_have_nothing_left",),
    ),
    Mutant(
        "parts that begin one early", TWICE, "reduction_part_step", ADDRESSES,
        "factor = factor * atom.chunk", "factor = factor * (atom.chunk - 1)",
        PARTS,
    ),
    Mutant(
        "moments of parts without their distance", WRONG, "reduction_parts", SPLIT,
        "kernel.sum(squares + count * (apart * apart), r)]", "kernel.sum(squares, r)]",
        MOMENTS,
    ),
    Mutant(
        "means of parts as if all were as long", WRONG, "reduction_part_work", SPLIT,
        "middle = kernel.sum(count * mean, r) / kernel.maximum(total, 1.0)",
        "middle = kernel.sum(mean, r) / kernel.sum(count * 0.0 + 1.0, r)",
        MOMENTS,
    ),
    # ---- indices ----
    Mutant(
        "offsets of lanes one bit too short", NARROW, "index_bits", TYPES,
        "nbytes >> (NARROW_BITS.value - 1) else", "nbytes >> (NARROW_BITS.value + 2) else",
        INDICES,
    ),
    Mutant(
        "offsets of lanes always narrow", NARROW, "index_bits", TYPES,
        "return I64 if nbytes is None or nbytes >> (NARROW_BITS.value - 1) else narrow_type()",
        "return narrow_type()",
        INDICES,
    ),
    Mutant(
        "numbers of elements one bit too short", NARROW, "index_bits", FORMS,
        "limit = 1 << (NARROW_BITS.value - 1)", "limit = 1 << NARROW_BITS.value",
        INDICES,
    ),
    Mutant(
        "numbers of elements always narrow", NARROW, "index_bits", FORMS,
        "return bool(at_most(-limit, limits[0]) and at_most(limits[1], limit - 1))", "return True",
        INDICES,
    ),
    # ---- sorted rows ----
    Mutant(
        "last merge of a sorted row dropped", DROPPED, "sorted_row", SORTING + "algorithms.py",
        "passes = f.sub(constant(I64, 64), leading)", "passes = f.sub(constant(I64, 63), leading)",
        SORTED,
    ),
    Mutant(
        "last run of a sorted row reads on", UNMASKED, "sorted_row", SORTING + "algorithms.py",
        "high = _least(f, f.add(middle, width), count)", "high = f.add(middle, width)",
        SORTED,
    ),
    Mutant(
        "last digit of many keys ignored", DROPPED, "radix_sorted_keys", SORTING + "algorithms.py",
        "enumerate(digits):\n        table", "enumerate(digits[:-1]):\n        table",
        SORTED,
    ),
)  # fmt: skip
