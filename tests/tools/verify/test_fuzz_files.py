"""A few of the damaged files of the benchmark; a thousand times as many run there."""

from random import Random

from compiler.ir.model_format.protobuf import parse
from tools.verify.fuzz_files import Tally, fuzz, originals, report
from tools.verify.support.damage import damaged_bytes, damaged_fields, words_of


def test_damaged_files_are_rejected_or_read() -> None:
    tallies = fuzz(range(130), compile_too=True)
    assert {kind: tally.failures for kind, tally in tallies.items()} == {
        kind: {} for kind in tallies
    }
    assert [tally.cases for tally in tallies.values()] == [26] * 5
    for tally in tallies.values():
        assert tally.cases == tally.refused + tally.read
        assert min(tally.refused, tally.read) > 0
    assert tallies["program: fields"].compiled > 10
    assert "met     0 of 130 damaged files fail" in report(tallies)


def test_damage_repeats_by_seed() -> None:
    data = originals()[0].data
    message = parse(data)
    first, again = (
        [
            (
                damaged_bytes(Random(f"0/{case}"), data, data),
                damaged_fields(Random(f"0/{case}"), message, words_of(message)),
            )
            for case in range(40)
        ]
        for _ in range(2)
    )
    assert repr(first) == repr(again)
    assert len({given for given, _ in first}) > 30


def test_failures_are_reported_by_number() -> None:
    tally = Tally(cases=2, read=1)
    tally.add(Tally(cases=1, failures={7: "KeyError: 'x'"}, memory=1.5))
    told = report({"parameter": tally})
    assert "case 7: KeyError: 'x'" in told
    assert "MISSED  1 of 3 damaged files fail" in told
