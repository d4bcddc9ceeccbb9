"""Mutants of native products and convolutions: panels, tiles, packing, divided sums."""

from tools.verify.mutations.sizes.mutant import DROPPED, ONE_ELEMENT, TWICE, UNMASKED, WRONG, Mutant

FOLDER = "compiler/codegen/native/products/"
NEST, MICRO, PARTS = FOLDER + "nest.py", FOLDER + "microkernel.py", FOLDER + "parts.py"
CALLED = FOLDER + "epilogue.py"
ONE_COLUMN, COPYING = FOLDER + "one_column.py", FOLDER + "copying.py"
TRANSPOSED, GRADIENT = FOLDER + "transposed_parts.py", FOLDER + "filter_gradient.py"

BEYOND = "tests/codegen/native/test_beyond_thresholds.py"
MATRICES = (f"{BEYOND}::test_matrices",)
CONVOLUTIONS = (f"{BEYOND}::test_convolutions_and_gradients",)
WIDENED = ("tests/codegen/native/test_narrow_factors.py",)

MUTANTS = (
    # ---- units, panels and tiles ----
    Mutant(
        "last block of rows dropped", DROPPED, "product_units", NEST,
        "blocks = _divide_up(_divide_up(high, self.tiling.high), self.tiling.block)",
        "blocks = _divide_up(high, self.tiling.high) // self.tiling.block",
        MATRICES,
    ),
    Mutant(
        "last block of rows reads on", UNMASKED, "product_unit_work", NEST,
        "self.indices.repeat(start, self.indices.least(stop, whole), each(length, 0))",
        "self.indices.repeat(start, stop, each(length, 0))",
        MATRICES,
    ),
    Mutant(
        "blocks of rows begin where the first does", TWICE, "product_shared_work", NEST,
        "start = self.indices.mul(block, self.tiling.block)", "start = block",
        MATRICES,
    ),
    Mutant(
        "last panel has no unit", DROPPED, "right_operand", NEST,
        'panels = 1 if self.tiling.order == "tiles" else whole + rest',
        'panels = 1 if self.tiling.order == "tiles" else whole',
        MATRICES,
    ),
    Mutant(
        "panels and blocks exchanged", WRONG, "left_operand", NEST,
        "            *places, block, panel = self.indices.digits(number, counts)",
        "            *places, panel, block = self.indices.digits(number, counts)",
        MATRICES,
    ),
    Mutant(
        "last panel of a tile dropped", DROPPED, "tile_vectors", NEST,
        "        self.indices.repeat(0, last, each(self._last_panel))\n", "",
        MATRICES,
    ),
    Mutant(
        "last panel not masked", UNMASKED, "tile_vectors", NEST,
        "return then(at, Panel(vectors, lanes if lanes < self.lanes else None))",
        "return then(at, Panel(vectors, None))",
        MATRICES,
    ),
    Mutant(
        "last panel of an open width not masked", UNMASKED, "tile_vectors", NEST,
        "return then(at, Panel(1, self.indices.least(rest, self.lanes)))",
        "return then(at, Panel(1, None))",
        MATRICES,
    ),
    Mutant(
        "vectors of a tile read the first", ONE_ELEMENT, "tile_vectors", MICRO,
        "self.function.address(pointer, start + vector * self.lanes, size)",
        "self.function.address(pointer, start, size)",
        ("tests/codegen/native/test_products.py::test_products_of_doubles",),
    ),
    Mutant(
        "rows behind whole tiles dropped", DROPPED, "tile_rows", NEST,
        "            self._when_less(whole, stop, lambda: body(0, []))\n", "            pass\n",
        MATRICES,
    ),
    Mutant(
        "rows behind whole tiles of an open height dropped", DROPPED, "tile_rows", NEST,
        "                self.indices.repeat(0, count, each(size, done))\n", "",
        MATRICES,
    ),
    Mutant(
        "columns of images behind whole tiles dropped", DROPPED, "tile_rows", NEST,
        "                each(self.wide - done, done)(0, [])\n", "                pass\n",
        CONVOLUTIONS,
    ),
    Mutant(
        "tiles for the rest of open rows that do not divide it", DROPPED, "open_multiple",
        FOLDER + "tiles.py",
        "return [step * (parts >> shift) for shift in range(1, parts.bit_length())]",
        "return [step * (parts >> shift) for shift in range(1, parts.bit_length() - 1)]",
        MATRICES,
    ),
    Mutant(
        "columns of images behind whole tiles of an open width dropped", DROPPED, "open_size", NEST,
        "self.indices.divide(self.indices.sub(self.wide, done), size)\n"
        "            self.indices.repeat(0, count, each(size, done))\n",
        "self.indices.divide(self.indices.sub(self.wide, done), size)\n",
        CONVOLUTIONS,
    ),
    # ---- epilogues ----
    Mutant(
        "masked vectors call the epilogue of whole ones", UNMASKED, "inlined_epilogue", CALLED,
        "tuple(place.pointers), masked)", "tuple(place.pointers))",
        ("tests/codegen/native/products/test_epilogue.py",),
    ),
    # ---- sums ----
    Mutant(
        "blocks of a product not joined", DROPPED, "product_block", MICRO,
        "*(self.function.add(a, b) for a, b in zip(totals, sums, strict=True)),", "*sums,",
        MATRICES,
    ),
    Mutant(
        "blocks of a product begin from the total", TWICE, "product_block", MICRO,
        "[*carried[:-places], *(zero(self.type) for _ in totals)]",
        "[*carried[:-places], *totals]",
        MATRICES,
    ),
    Mutant(
        "last block of a product reads on", UNMASKED, "product_block", MICRO,
        "stop = self.indices.least(self.indices.add(start, steps), count)",
        "stop = self.indices.add(start, steps)",
        MATRICES,
    ),
    Mutant(
        "products in no blocks", WRONG, "product_block", MICRO,
        "if level != blocked:", "if True:",
        ("tests/codegen/native/test_products.py::test_long_sums_lose_no_more_than_short_ones",),
    ),
    Mutant(
        "last steps of a sum dropped", DROPPED, "unrolled_steps", MICRO,
        "return self._iteration(rest, carried)[1:] if rest else carried[1:]", "return carried[1:]",
        MATRICES,
    ),
    Mutant(
        "last steps of an open sum dropped", DROPPED, "unrolled_steps", MICRO,
        "return self._iterations((whole, count), count, 1, carried)[1:]", "return carried[1:]",
        MATRICES,
    ),
    Mutant(
        "steps of an iteration read the first", TWICE, "unrolled_steps", MICRO,
        'rest = self._products(self._step(left, "a", axis, step), vectors, rest)',
        "rest = self._products(left, vectors, rest)",
        MATRICES,
    ),
    # ---- few rows, one column ----
    Mutant(
        "all but the first tile of a block dropped", DROPPED, "few_rows_block", NEST,
        "stop = self.indices.least(self.indices.add(start, self.tiling.block), tiles)",
        "stop = self.indices.least(self.indices.add(start, 1), tiles)",
        (f"{BEYOND}::test_few_rows",),
    ),
    Mutant(
        "lanes of a single column not added", DROPPED, "one_column_rows", ONE_COLUMN,
        'self.function.reduce("fadd", lanes)', "self.function.extract(lanes, 0)",
        MATRICES,
    ),
    Mutant(
        "last steps of a single column dropped", DROPPED, "one_column_rows", ONE_COLUMN,
        "        if rest:\n", "        if False:\n",
        MATRICES,
    ),
    Mutant(
        "last steps of a single column not masked", UNMASKED, "one_column_work", ONE_COLUMN,
        "self._multiplied(carried, lane_mask(self.function, self.lanes, rest), rest)",
        "self._multiplied(carried, None, rest)",
        MATRICES,
    ),
    Mutant(
        "last vectors of a single column dropped", DROPPED, "one_column_rows", ONE_COLUMN,
        "        if whole > done:\n", "        if False:\n",
        MATRICES,
    ),
    # ---- packing ----
    Mutant(
        "last panel not packed", DROPPED, "first_cache", FOLDER + "packing.py",
        "panels = whole + min(left, 1) if isinstance(left, int) else whole + left",
        "panels = whole",
        MATRICES,
    ),
    Mutant(
        "all panels read the first", TWICE, "first_cache", NEST,
        "moved[name] = self.indices.move(pointers[name], column, self.depth, nbytes)",
        "moved[name] = pointers[name]",
        MATRICES,
    ),
    Mutant(
        "columns behind whole vectors not packed", DROPPED, "few_rows", COPYING,
        "            f.when(has_rest, rest)\n", "",
        MATRICES,
    ),
    Mutant(
        "steps behind whole squares not packed", DROPPED, "first_cache", COPYING,
        "return f.loop_if_any(whole, count, 1, single, [state[0], source])[0]", "return state[0]",
        MATRICES,
    ),
    Mutant(
        "lanes of packed columns read one", ONE_ELEMENT, "first_cache", COPYING,
        "return [f.index(self.indices.mul(index, stride)) for index in clamped]",
        "return [f.index(self.indices.mul(0, stride)) for index in clamped]",
        MATRICES,
    ),
    # ---- gradients of filters ----
    Mutant(
        "last part of a filter gradient reads on", UNMASKED, "filter_gradient_steps", NEST,
        "counts[0] = counts[0] if even else self.indices.least(counts[0], left)",
        "counts[0] = counts[0]",
        CONVOLUTIONS,
    ),
    Mutant(
        "parts of images overlap", TWICE, "second_cache", GRADIENT,
        "strides = {name: product([steps, stride]) for name, stride in axis.strides.items()}",
        "strides = {n: product([max(1, steps - 1), s]) for n, s in axis.strides.items()}",
        CONVOLUTIONS,
    ),
    Mutant(
        "last rows of images in no part", DROPPED, "filter_gradient_steps", GRADIENT,
        "return Axis(_divide_up(axis.count, steps), {**strides, out: size})",
        "return Axis(axis.count // steps, {**strides, out: size})",
        CONVOLUTIONS,
    ),
    Mutant(
        "packed gradient of parts read from the first", TWICE, "filter_gradient_rows",
        FOLDER + "packed.py",
        'if axis.stride("b") != 0:', "if False:",
        CONVOLUTIONS,
    ),
    Mutant(
        "divided axis merged with the others", WRONG, "filter_gradient_pixel",
        FOLDER + "packed.py",
        "return (axes[0], *merged(axes[1:]))", "return merged(axes)",
        (f"{BEYOND}::test_parts_of_axes_that_could_be_merged",),
    ),
    Mutant(
        "last part of a sum of parts dropped", DROPPED, "parts_block", PARTS,
        "self.indices.repeat(0, counts[0], add, start)",
        "self.indices.repeat(0, self.indices.sub(counts[0], 1), add, start)",
        CONVOLUTIONS,
    ),
    Mutant(
        "vectors of a sum of parts read the first", ONE_ELEMENT, "parts_block", PARTS,
        "                self._load(part, vector, mask if",
        "                self._load(part, 0, mask if",
        CONVOLUTIONS,
    ),
    Mutant(
        "sum of parts not masked", UNMASKED, "parts_block", PARTS,
        'pointers["out"], vector, value, mask if vector == panel.vectors - 1 else None',
        'pointers["out"], vector, value, None',
        CONVOLUTIONS,
    ),
    Mutant(
        "last part of transposed filters dropped", DROPPED, "filter_gradient_steps", TRANSPOSED,
        "return self.indices.repeat(0, self.parts, add, [zero(self.type)] * self.lanes)",
        "most = self.indices.sub(self.parts, 1)\n"
        "        return self.indices.repeat(0, most, add, [zero(self.type)] * self.lanes)",
        CONVOLUTIONS,
    ),
    Mutant(
        "last filters of a sum of parts dropped", DROPPED, "filter_gradient_steps", TRANSPOSED,
        "if whole < self.filters:", "if False:",
        CONVOLUTIONS,
    ),
    Mutant(
        "last channels of a sum of parts not masked", UNMASKED, "filter_gradient_steps",
        TRANSPOSED,
        "self._storing(pairs, lane_mask(f, self.lanes, used)),", "self._storing(pairs, None),",
        CONVOLUTIONS,
    ),
    # ---- factors in half precision ----
    Mutant(
        "last unit of widened factors writes on", UNMASKED, "widening_block",
        "compiler/codegen/native/narrow_factors.py",
        "stop = f.index(indices.least(indices.mul(last, BLOCK.value), count))",
        "stop = f.index(indices.mul(last, BLOCK.value))",
        WIDENED,
    ),
    Mutant(
        "widened factors behind whole vectors dropped", DROPPED, "widening_block",
        "compiler/codegen/native/narrow_factors.py",
        "    f.loop_if_any(whole, stop, 1, convert(F32))\n", "",
        WIDENED,
    ),
    Mutant(
        "factors between units not widened", DROPPED, "widening_block",
        "compiler/codegen/native/narrow_factors.py",
        "start = f.index(indices.mul(first, BLOCK.value))",
        "start = f.index(indices.mul(first, BLOCK.value + 1))",
        WIDENED,
    ),
)  # fmt: skip
