"""The search for a packing of a given height: depth first over what lies in the lowest places.

Every packing can be pushed down until each block lies on the floor or on others, so blocks are laid
from below. What is laid so far has a floor in each section (`sections`); a stretch of equal floors
between higher ones is a valley, and whatever lies deepest in it lies wholly inside it. So a choice
is about one section of a valley: one of the blocks that fit there lies on its floor, or none does
and its floor rises to the next place where one could begin. Every packing is met by one row of
choices only, which is the canonical order. Four things keep the tree small:

- rising wastes bytes, and each section has only as many to waste as the height leaves it;
- no floor need rise past where a block that was left out would still have fitted (dominance);
- sections that no unlaid block connects are searched apart, and a part that fails is not blamed on
  another's choices;
- a state that failed is remembered, and choices begin where earlier ones failed (weights).

The ideas are those of MiniMalloc (Moffitt, ASPLOS 2023: canonical order, section inference,
dominance, decomposition) and of weighted degrees in constraint solvers (Boussemart et al., 2004);
choosing by valleys is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from compiler.pack.sections import Sections, members

HIGH = 1 << 62
"""The floor at the edge of a part: nothing lies beyond."""

GONE = HIGH - 1
"""The floor of a section in which all is laid."""


WIDE = 64
"""Sections of a part for which a choice counts as another step."""

FADING = 0.5
"""What is left of the weight of a failure at the next attempt."""


class Found(Enum):
    """How an attempt ended: with a packing, with none to find, or out of steps."""

    PACKING = "packing"
    NOTHING = "nothing"
    OPEN = "open"


class Pick(Enum):
    """Where to choose next: the fewest blocks per failure seen there, or the most failures."""

    FEWEST = "fewest"
    HARDEST = "hardest"


@dataclass(frozen=True, slots=True)
class Rest:
    """A part still to be searched, of the sections `[low, high)`, and those after it.

    It came to be when `depth` choices were open: it does not depend on later ones.
    """

    low: int
    high: int
    depth: int
    others: Rest | None


@dataclass(slots=True)
class State:
    """What is laid so far: the floor of each section, the bytes it may still waste, what is left.

    The search is in the part `[low, high)`; `rest` are the parts after it.
    """

    floors: list[int]
    slack: list[int]
    unlaid: int
    low: int
    high: int
    rest: Rest | None


@dataclass(frozen=True, slots=True)
class Place:
    """A section where a choice is made.

    `fitting` are the blocks that could lie on its floor, `beside` the others of the valley, and
    `wall` is the lower side of the valley.
    """

    section: int
    floor: int
    wall: int
    fitting: int
    beside: int


@dataclass(slots=True)
class Choice:
    """An open choice: what it leads to, not looked at yet, and the mark of the state it is in."""

    branches: Iterator[State]
    mark: int


class Search:
    """Attempts at packing blocks into `height` bytes; what failed is remembered between them.

    Weights count the failures of each section, those of earlier attempts half as much each time.
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
        """Look for a packing with blocks of low `rank` first, for so many steps (or a few more).

        With PACKING, `offsets` are those of the blocks; `steps` counts all that were made.
        """
        self._rank, self._pick, self._weights = rank, pick, self._all_weights[pick]
        self._weights[:] = [1 + (weight - 1) * FADING for weight in self._weights]
        self._choices = []
        state = self._start()
        last = self.steps + steps
        while state is not None:
            if self.steps >= last:
                return Found.OPEN
            place = self._settle(state)
            if place is not None:
                state = self._branch(state, place)
            elif not state.unlaid & self._part(state):
                if state.rest is None:
                    return Found.PACKING
                state = self._next_part(state, state.rest)
            else:
                state = self._back()
        return Found.NOTHING

    # ---- moving through the tree ----

    def _start(self) -> State | None:
        """Nothing laid, cut into parts where no block connects them; None where it cannot fit."""
        count = len(self.sections.live)
        slack = [self._height - total for total in self.sections.totals]
        state = State([0] * count, slack, (1 << len(self.offsets)) - 1, 0, count, None)
        return self._cut(state, 0, count) if min(slack) >= 0 else None

    def _branch(self, state: State, place: Place) -> State | None:
        """Open a choice, unless this state has failed before."""
        floors = tuple(state.floors[state.low : state.high])
        mark = hash((state.unlaid & self._part(state), floors))
        if mark not in self._failed:
            self._choices.append(Choice(self._branches(state, place), mark))
        return self._back()

    def _back(self) -> State | None:
        """The next branch of the last choice that has one."""
        while self._choices:
            state = next(self._choices[-1].branches, None)
            if state is not None:
                self.steps += cost(state.high - state.low)
                return state
            self._failed.add(self._choices.pop().mark)
        return None

    def _next_part(self, state: State, rest: Rest) -> State:
        """Go on with the next part; the choices within the one before it stand."""
        del self._choices[rest.depth :]
        return replace(state, low=rest.low, high=rest.high, rest=rest.others)

    def _part(self, state: State) -> int:
        """The blocks within the part."""
        return self.sections.after[state.low] & self.sections.before[state.high]

    # ---- where to choose ----

    def _settle(self, state: State) -> Place | None:
        """Raise floors on which nothing fits, until all have something; then the place to choose.

        None where a section has not enough bytes to waste, or where all of the part is laid.
        """
        settled = False
        best: Place | None = None
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
                        best, least = Place(section, floor, wall, fitting, inside ^ fitting), order
        return best

    def _inside(self, left: int, right: int) -> int:
        return self.sections.after[left] & self.sections.before[right]

    def _raise(self, state: State, section: int, floor: int) -> bool:
        """Waste the bytes up to a floor; False, and a failure noted, where there are too few."""
        state.slack[section] -= floor - state.floors[section]
        state.floors[section] = floor
        enough = state.slack[section] >= 0
        self._weights[section] += not enough
        return enough

    def _order(self, section: int, count: int, slack: int) -> tuple[float, float]:
        if self._pick is Pick.FEWEST:
            return count / self._weights[section], slack
        return -self._weights[section] if count > 1 else -HIGH, count

    # ---- what to choose ----

    def _branches(self, state: State, place: Place) -> Iterator[State]:
        """The states after each block that fits, in order of rank, and after none of them."""
        twins: set[tuple[tuple[int, int], int]] = set()
        fitting = sorted(members(place.fitting), key=self._rank.__getitem__)
        for block in fitting:
            shape = (self.sections.spans[block], self.sections.sizes[block])
            if shape not in twins:
                twins.add(shape)
                yield self._lay(state, place, block)
        lift = self._lift(place)
        if state.slack[place.section] >= lift and not self._dominated(place, fitting, lift):
            raised = replace(state, floors=state.floors[:], slack=state.slack[:])
            raised.floors[place.section] += lift
            raised.slack[place.section] -= lift
            yield raised

    def _lift(self, place: Place) -> int:
        """The bytes up to the next floor in a section, if nothing begins on the one it has."""
        support = min((self.sections.sizes[block] for block in members(place.beside)), default=HIGH)
        return min(place.wall - place.floor, support)

    def _dominated(self, place: Place, fitting: Sequence[int], lift: int) -> bool:
        """Whether some block would fit below all that can still come, if none were chosen."""
        for block in (block for block in fitting if self.sections.sizes[block] <= lift):
            first, last = self.sections.spans[block]
            apart = self.sections.after[last] | self.sections.before[first]
            if not place.beside & ~apart:
                return True
        return False

    def _lay(self, state: State, place: Place, block: int) -> State:
        """Lay a block on the floor; sections in which all is laid are gone."""
        first, last = self.sections.spans[block]
        floors = state.floors[:]
        unlaid = state.unlaid & ~(1 << block)
        top = place.floor + self.sections.sizes[block]
        for section in range(first, last):
            floors[section] = top if self.sections.live[section] & unlaid else GONE
        self.offsets[block] = place.floor
        laid = State(floors, state.slack[:], unlaid, state.low, state.high, state.rest)
        return self._cut(laid, first + 1, last)

    def _cut(self, state: State, first: int, last: int) -> State:
        """Cut the part at boundaries from `first` on that no unlaid block crosses any more."""
        crosses = self.sections.crosses
        inner = range(max(first, state.low + 1), last)
        cuts = [each for each in inner if not crosses(each) & state.unlaid]
        for low, high in pairwise([*cuts, state.high]):
            state.rest = Rest(low, high, len(self._choices), state.rest)
        state.high = cuts[0] if cuts else state.high
        return state


def cost(sections: int) -> int:
    """The steps that one choice counts for in a part of so many sections: its time is like that."""
    return 1 + sections // WIDE


def _valleys(state: State) -> Iterator[tuple[int, int, int, int]]:
    """The stretches `[left, right)` of equal floors between higher ones: also floor and wall."""
    floors, high = state.floors, state.high
    left, before = state.low, HIGH
    while left < high:
        floor, right = floors[left], left + 1
        while right < high and floors[right] == floor:
            right += 1
        behind = floors[right] if right < high else HIGH
        if floor < before and floor < behind and floor < GONE:
            yield left, right, floor, min(before, behind)
        left, before = right, floor
