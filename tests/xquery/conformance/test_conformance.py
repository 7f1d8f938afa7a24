from __future__ import annotations

import pytest
from tests.xquery.conformance.differences import DIFFERENCES
from tests.xquery.conformance.random_queries import disagreements
from tests.xquery.conformance.suite import Saxon, expected, features, ours


@pytest.fixture(scope="module")
def saxon() -> Saxon:
    return Saxon()


@pytest.mark.parametrize("feature", sorted(features()))
def test_answers_are_those_of_saxon(feature: str, saxon: Saxon) -> None:
    wrong = []
    for query in features()[feature]:
        wanted, found = expected(query, saxon.answer(query)), ours(query)
        if found != wanted:
            wrong.append(f"{query}\n  expected {wanted}\n  found    {found}")
    assert not wrong, "\n\n".join(wrong)


def test_suite_is_large_and_differences_are_part_of_it() -> None:
    queries = [query for part in features().values() for query in part]
    assert len(queries) >= 1000
    assert len(set(queries)) == len(queries)
    assert set(DIFFERENCES) <= set(queries)


def test_differences_are_real(saxon: Saxon) -> None:
    for query, different in DIFFERENCES.items():
        answer = saxon.answer(query)
        assert (answer.items, answer.error) != (different.items, different.code), query


@pytest.mark.sampled(3)
def test_random_queries_are_answered_as_by_saxon() -> None:
    assert disagreements(500, seed=11) == []
