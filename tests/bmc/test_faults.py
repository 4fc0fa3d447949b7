"""When faults on demand strike."""

from __future__ import annotations

from nospoon.bmc.faults import HTTP, POWER, Fault, Faults, Kind

DROP = frozenset({Kind.DROP})


def faults(*given: Fault) -> Faults:
    made = Faults()
    for each in given:
        made.put(each)
    return made


def test_a_fault_strikes_until_its_time_is_over() -> None:
    made = faults(Fault(Kind.DROP, until=10))
    assert made.strike(DROP, now=9, chance=0.9) is not None
    assert made.strike(DROP, now=10, chance=0) is None
    assert made.at(10) == []


def test_a_fault_strikes_as_often_as_it_was_told() -> None:
    made = faults(Fault(Kind.DROP, count=2))
    struck = [made.strike(DROP, now=0, chance=0) is not None for _ in range(3)]
    assert struck == [True, True, False]


def test_a_fault_strikes_with_its_probability_and_a_miss_is_not_counted() -> None:
    made = faults(Fault(Kind.DROP, probability=0.2, count=1))
    assert made.strike(DROP, now=0, chance=0.2) is None
    assert made.strike(DROP, now=0, chance=0.19) is not None


def test_only_faults_of_the_kinds_asked_for_strike() -> None:
    made = faults(Fault(Kind.POWER_STUCK), Fault(Kind.HTTP_503, seconds=7))
    assert made.strike(DROP, now=0, chance=0) is None
    assert made.strike(HTTP, now=0, chance=0) == Fault(Kind.HTTP_503, seconds=7)
    assert made.strike(POWER, now=0, chance=0) == Fault(Kind.POWER_STUCK)


def test_the_last_of_a_kind_holds_and_clearing_ends_all() -> None:
    made = faults(Fault(Kind.DROP, count=9), Fault(Kind.DROP, probability=0.5))
    assert [each.text(0) for each in made.at(0)] == ["drop (50%)"]
    made.clear()
    assert made.at(0) == []


def test_sensors_read_what_they_are_told_each_until_its_time_is_over() -> None:
    made = faults(
        Fault(Kind.SENSOR, sensor=2, value=99, until=10), Fault(Kind.SENSOR, sensor=3, value=0)
    )
    assert [made.reading(n, now=9) for n in (1, 2, 3)] == [None, 99, 0]
    assert [made.reading(n, now=10) for n in (1, 2, 3)] == [None, None, 0]
    assert [each.text(0) for each in made.at(10)] == ["sensor (sensor 3 reads 0)"]


def test_a_sensor_that_is_told_anew_reads_that() -> None:
    made = faults(Fault(Kind.SENSOR, sensor=2, value=1), Fault(Kind.SENSOR, sensor=2, value=2))
    assert made.reading(2, now=0) == 2


def test_of_several_that_could_strike_each_has_its_chance() -> None:
    made = faults(Fault(Kind.HTTP_500, probability=0.2), Fault(Kind.HTTP_503, probability=0.5))
    struck = [made.strike(HTTP, now=0, chance=(each + 0.5) / 1000) for each in range(1000)]
    kinds = [None if each is None else each.kind for each in struck]
    counts = [kinds.count(each) for each in (Kind.HTTP_500, Kind.HTTP_503, None)]
    assert counts == [200, 400, 400]


def test_a_fault_that_is_used_up_leaves_its_place_to_another() -> None:
    made = faults(Fault(Kind.HTTP_500, count=1), Fault(Kind.HTTP_503))
    struck = [made.strike(HTTP, now=0, chance=0.5) for _ in range(2)]
    assert [each.kind for each in struck if each is not None] == [Kind.HTTP_500, Kind.HTTP_503]
