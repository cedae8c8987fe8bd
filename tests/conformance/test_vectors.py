"""numalet decides as the kubelet does: every recorded case, answered by `numalet replay`'s own code."""

from __future__ import annotations

import pytest

from agent.replay.cases import answer, mismatches
from tests.conformance.vectors import CASES, cases


@pytest.mark.parametrize(("name", "count"), CASES.items(), ids=CASES)
def test_every_answer_is_the_one_of_the_reference(name: str, count: int) -> None:
    seen, wrong = 0, {}
    for line, case in cases(name):
        seen += 1
        different = mismatches(case, answer(case))
        if different:
            wrong[line] = different[0]
    assert wrong == {}
    assert seen == count
