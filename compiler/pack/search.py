"""Search for a packing of a given height: depth-first, lowest offsets first.

Any packing can be pushed down until each block lies on the floor or on other blocks, so blocks are
placed from the bottom. Sections of equal floor between higher ones form a valley, and whatever lies
lowest in it lies entirely inside it. So a branch decides one section of a valley: either one of the
blocks that fit lies on its floor, or none does and its floor rises to the next offset at which one
could begin. Every packing is reached by exactly one sequence of branches, the canonical order. Four
techniques keep the tree small:

- raising a floor wastes bytes, and each section has a limited slack, given by the height;
- no floor is raised past where an omitted block would still have fitted (dominance);
- sections that no unplaced block connects are searched separately, so the failure of one part does
  not backtrack into the choices of another (decomposition);
- failed states are memoised, and branching prefers sections that failed before (weights).

The ideas are those of MiniMalloc (Moffitt, ASPLOS 2023: canonical order, section inference,
dominance, decomposition) and of weighted degrees in constraint solvers (Boussemart et al., 2004);
branching on valleys is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise

from compiler.pack.sections import Sections, members
from compiler.support.dataclass import dataclass

HIGH = 1 << 62
"""The floor at the boundary of a part."""

FILLED = HIGH - 1
"""The floor of a section in which every block is placed."""


WIDE = 64
"""Sections of a part per additional step that a branch costs."""

FADING = 0.5
"""Decay of the failure weights from one attempt to the next."""


class Found(Enum):
    """Outcome of an attempt: a packing, proof that there is none, or out of steps."""

    PACKING = "packing"
    NOTHING = "nothing"
    OPEN = "open"


class Pick(Enum):
    """Which section to branch on: fewest blocks per failure, or most failures."""

    FEWEST = "fewest"
    HARDEST = "hardest"


@dataclass(frozen=True, slots=True)
class PendingPart:
    """A part still to be searched, the sections `[low, high)`, and those after it.

    It was created when `depth` choices were open, and does not depend on later ones.
    """

    low: int
    high: int
    depth: int
    others: PendingPart | None


@dataclass(slots=True)
class State:
    """A partial packing: the floor and the slack of each section, and the unplaced blocks.

    The search is in the part `[low, high)`; `rest` are the parts after it.
    """

    floors: list[int]
    slack: list[int]
    unlaid: int
    low: int
    high: int
    rest: PendingPart | None


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A section to branch on.

    `fitting` are the blocks that could lie on its floor, `rest_of_valley` the others, and
    `wall` is the lower of the floors on either side of the valley.
    """

    section: int
    floor: int
    wall: int
    fitting: int
    rest_of_valley: int


@dataclass(slots=True)
class Choice:
    """An open choice: its remaining branches, and the hash of the state it was made in."""

    branches: Iterator[State]
    mark: int


class Search:
    """Attempts at packing blocks into `height` bytes; failed states are remembered between them.

    Weights count the failures of each section, halved with each later attempt.
    """

    def __init__(self, sections: Sections, height: int) -> None:
        self.sections = sections
        self.steps = 0
        self.offsets = [0] * len(sections.sizes)
        self._height = height
        self._all_weights = {pick: [1.0] * len(sections.live) for pick in Pick}
        self._weights = self._all_weights[Pick.FEWEST]
        self._failed: set[int] = set()
        self._rank: Sequence[int] = ()
        self._pick = Pick.FEWEST
        self._choices: list[Choice] = []

    def attempt(self, rank: Sequence[int], pick: Pick, steps: int) -> Found:
        """Search for a packing with blocks of low `rank` first, for about `steps` steps.

        With PACKING, `offsets` are those of the blocks; `self.steps` counts the steps of all
        attempts.
        """
        self._rank, self._pick, self._weights = rank, pick, self._all_weights[pick]
        self._weights[:] = [1 + (weight - 1) * FADING for weight in self._weights]
        self._choices = []
        state = self._start()
        last = self.steps + steps
        while state is not None:
            if self.steps >= last:
                return Found.OPEN
            point = self._propagate(state)
            if point is not None:
                state = self._branch(state, point)
            elif not state.unlaid & self._part(state):
                if state.rest is None:
                    return Found.PACKING
                state = self._next_part(state, state.rest)
            else:
                state = self._backtrack()
        return Found.NOTHING

    # ---- depth-first search ----

    def _start(self) -> State | None:
        """Return the initial state, split into independent parts; None if the height is too
        small.
        """
        count = len(self.sections.live)
        slack = [self._height - total for total in self.sections.totals]
        state = State([0] * count, slack, (1 << len(self.offsets)) - 1, 0, count, None)
        return self._split(state, 0, count) if min(slack) >= 0 else None

    def _branch(self, state: State, point: BranchPoint) -> State | None:
        """Branch on a section, unless this state has failed before."""
        floors = tuple(state.floors[state.low : state.high])
        mark = hash((state.unlaid & self._part(state), floors))
        if mark not in self._failed:
            self._choices.append(Choice(self._branches(state, point), mark))
        return self._backtrack()

    def _backtrack(self) -> State | None:
        """Backtrack to the next branch of the last choice that has one."""
        while self._choices:
            state = next(self._choices[-1].branches, None)
            if state is not None:
                self.steps += cost(state.high - state.low)
                return state
            self._failed.add(self._choices.pop().mark)
        return None

    def _next_part(self, state: State, rest: PendingPart) -> State:
        """Continue with the next part; the choices within the finished part are final."""
        del self._choices[rest.depth :]
        return replace(state, low=rest.low, high=rest.high, rest=rest.others)

    def _part(self, state: State) -> int:
        """Return the blocks within the part."""
        return self.sections.after[state.low] & self.sections.before[state.high]

    # ---- selection of the section to branch on ----

    def _propagate(self, state: State) -> BranchPoint | None:
        """Raise floors on which nothing fits until every section has candidates; return one to
        branch on.

        Returns None if a section has too little slack, or if all of the part is placed.
        """
        settled = False
        best: BranchPoint | None = None
        while not settled:
            settled, best, least = True, None, (0.0, 0)
            for left, right, floor, wall in _valleys(state):
                inside = self._inside(left, right) & state.unlaid
                for section in range(left, right):
                    fitting = inside & self.sections.live[section]
                    if not fitting:
                        if not self._raise(state, section, wall):
                            return None
                        settled = False
                        continue
                    order = self._order(section, fitting.bit_count(), state.slack[section])
                    if best is None or order < least:
                        best, least = (
                            BranchPoint(section, floor, wall, fitting, inside ^ fitting),
                            order,
                        )
        return best

    def _inside(self, left: int, right: int) -> int:
        return self.sections.after[left] & self.sections.before[right]

    def _raise(self, state: State, section: int, floor: int) -> bool:
        """Raise a floor; return False and record a failure if the section has too little slack."""
        state.slack[section] -= floor - state.floors[section]
        state.floors[section] = floor
        enough = state.slack[section] >= 0
        self._weights[section] += not enough
        return enough

    def _order(self, section: int, count: int, slack: int) -> tuple[float, float]:
        if self._pick is Pick.FEWEST:
            return count / self._weights[section], slack
        return -self._weights[section] if count > 1 else -HIGH, count

    # ---- branches ----

    def _branches(self, state: State, point: BranchPoint) -> Iterator[State]:
        """Yield the states after placing each block that fits, by rank, and after placing none."""
        tried: set[tuple[tuple[int, int], int]] = set()
        fitting = sorted(members(point.fitting), key=self._rank.__getitem__)
        for block in fitting:
            shape = (self.sections.spans[block], self.sections.sizes[block])
            if shape not in tried:
                tried.add(shape)
                yield self._place_block(state, point, block)
        lift = self._lift(point)
        if state.slack[point.section] >= lift and not self._dominated(point, fitting, lift):
            raised = replace(state, floors=state.floors[:], slack=state.slack[:])
            raised.floors[point.section] += lift
            raised.slack[point.section] -= lift
            yield raised

    def _lift(self, point: BranchPoint) -> int:
        """Return the bytes up to the next possible floor of a section, if no block begins on this
        one.
        """
        support = min(
            (self.sections.sizes[block] for block in members(point.rest_of_valley)), default=HIGH
        )
        return min(point.wall - point.floor, support)

    def _dominated(self, point: BranchPoint, fitting: Sequence[int], lift: int) -> bool:
        """Whether a block would fit below everything that can follow, if none were chosen."""
        for block in (block for block in fitting if self.sections.sizes[block] <= lift):
            first, last = self.sections.spans[block]
            apart = self.sections.after[last] | self.sections.before[first]
            if not point.rest_of_valley & ~apart:
                return True
        return False

    def _place_block(self, state: State, point: BranchPoint, block: int) -> State:
        """BranchPoint a block on the floor; sections in which every block is placed are closed."""
        first, last = self.sections.spans[block]
        floors = state.floors[:]
        unlaid = state.unlaid & ~(1 << block)
        top = point.floor + self.sections.sizes[block]
        for section in range(first, last):
            floors[section] = top if self.sections.live[section] & unlaid else FILLED
        self.offsets[block] = point.floor
        laid = State(floors, state.slack[:], unlaid, state.low, state.high, state.rest)
        return self._split(laid, first + 1, last)

    def _split(self, state: State, first: int, last: int) -> State:
        """Split the part at boundaries from `first` on that no unplaced block crosses any more."""
        crosses = self.sections.crosses
        inner = range(max(first, state.low + 1), last)
        cuts = [block for block in inner if not crosses(block) & state.unlaid]
        for low, high in pairwise([*cuts, state.high]):
            state.rest = PendingPart(low, high, len(self._choices), state.rest)
        state.high = cuts[0] if cuts else state.high
        return state


def cost(sections: int) -> int:
    """Return the steps that one branch counts for in a part of `sections` sections (its time)."""
    return 1 + sections // WIDE


def _valleys(state: State) -> Iterator[tuple[int, int, int, int]]:
    """Yield the runs `[left, right)` of equal floors between higher ones, with floor and wall."""
    floors, high = state.floors, state.high
    left, before = state.low, HIGH
    while left < high:
        floor, right = floors[left], left + 1
        while right < high and floors[right] == floor:
            right += 1
        behind = floors[right] if right < high else HIGH
        if floor < before and floor < behind and floor < FILLED:
            yield left, right, floor, min(before, behind)
        left, before = right, floor
