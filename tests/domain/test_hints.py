"""Masks that are listed only when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator

from agent.domain.hints import Deferred, Hints


def test_deferred_masks_are_listed_once_and_only_when_looked_at() -> None:
    listings = []

    def listing() -> Iterator[int]:
        listings.append("listed")
        yield from (3, 5, 6)

    hints = Hints((1,), Deferred(listing))
    assert hints.preferred
    assert not listings
    assert (list(hints.other), len(hints.other), hints.other[1], hints.other[1:]) == ([3, 5, 6], 3, 5, (5, 6))
    assert listings == ["listed"]


def test_deferred_masks_equal_the_same_masks_in_a_tuple() -> None:
    deferred = Hints((1,), Deferred(lambda: [3]))
    assert deferred == Hints((1,), (3,)) == deferred
    assert Hints((1,), (3,)) == deferred == Hints((1,), Deferred(lambda: (3,)))
    assert len({deferred, Hints((1,), (3,))}) == 1
    assert deferred != Hints((1,), (5,))
    assert deferred.other != [3]
    assert repr(deferred) == repr(Hints((1,), (3,)))
    assert not Deferred(list)
