"""Collections of documents in an object store, reached with what Spark was given; Hadoop's connector is not needed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from bench.rivals.object_store import KEY, SECRET, ObjectStore

import dovetail
from dovetail.errors import ConfigError, PlanError
from dovetail.spark.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = 'for $b in collection("/books")/books/book order by $b return data($b)'


@pytest.fixture
def server(spark: SparkSession) -> Iterator[ObjectStore]:
    """A store that the session is configured for, with some documents."""
    with ObjectStore() as found:
        settings = {name.removeprefix("spark.hadoop."): value for name, value in found.settings.items()}
        for name, value in settings.items():
            spark.conf.set(name, value)
        found.put("books/a.xml", b"<books><book>Emma</book></books>")
        found.put("books/deep/b.xml.gz", gzip.compress(b"<books><book>Ulysses</book></books>"))
        found.put("books/c.txt", b"no document")
        yield found
        for name in settings:
            spark.conf.unset(name)


def items(spark: SparkSession, query: str, place: str) -> list[str]:
    return [row.item for row in dovetail.xquery(spark, query, {"/books": place}).collect()]


def test_a_directory_and_a_file(spark: SparkSession, server: ObjectStore) -> None:
    assert items(spark, QUERY, "s3a://data/books") == ["Emma", "Ulysses"]
    assert items(spark, QUERY, "s3a://data/books/a.xml") == ["Emma"]
    assert items(spark, 'data(doc("s3a://data/books/a.xml")/books/book)', "s3a://data/books") == ["Emma"]


def test_keys_are_not_shown(spark: SparkSession, server: ObjectStore) -> None:
    plan = dovetail.plan_xquery(spark, QUERY, collections={"/books": "s3a://data/books"})
    shown = f"{plan!r} {plan.explain()} {plan.job!r}"
    assert SECRET not in shown
    assert KEY not in shown


def test_none_at_all_and_one_that_is_gone(spark: SparkSession, server: ObjectStore) -> None:
    with pytest.raises(PlanError, match="s3a://data/none"):
        items(spark, QUERY, "s3a://data/none")
    lazy = dovetail.xquery(spark, QUERY, {"/books": "s3a://data/books"})
    server.objects.pop("books/a.xml")
    with pytest.raises(ConfigError, match=r"s3a://data/books/a.xml cannot be read"):
        lazy.collect()


def test_attempts_are_ours_unless_someone_sets_them(spark: SparkSession, server: ObjectStore) -> None:
    """Hadoop's own default is for a layer that others repeat, and would not outlive a store's half minute."""

    def attempts() -> int:
        access = getattr(place_of(spark, "s3a://data/x"), "access", None)
        assert access is not None
        return int(access.attempts)

    assert attempts() == 10
    spark.conf.set("fs.s3a.attempts.maximum", "4")
    assert attempts() == 4
    spark.conf.set("fs.s3a.bucket.data.attempts.maximum", "3")
    assert attempts() == 3
    spark.conf.unset("fs.s3a.attempts.maximum")
    spark.conf.unset("fs.s3a.bucket.data.attempts.maximum")
