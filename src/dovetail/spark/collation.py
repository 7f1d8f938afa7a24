"""Makes join keys of collated text: bytes that are equal exactly if Spark's collation says the texts are equal."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.spark.connect import require_classic


def collation_of(kind: T.DataType) -> str | None:
    """The collation of a text type that does not compare by its bytes; None for every other type."""
    return kind.collation if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation() else None


def collation_key(spark: Any, column: str) -> Column:
    """The collation key of a column, by its SQL name: the bytes that Spark's own joins hash and compare."""
    require_classic(
        spark,
        f"a join on the collated key {column}",
        f"join on text that compares by its bytes: F.col({column!r}).cast('string'), or lower of it.",
    )
    # Spark has the expression but no SQL function for it.
    expressions = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils
    text = expressions.expression(F.col(column)._jc)
    return Column(expressions.column(spark._jvm.org.apache.spark.sql.catalyst.expressions.CollationKey(text)))


def check_collations(left: T.StructField, right: T.StructField) -> None:
    """`PlanError` for two text keys of different collations, which Spark does not compare either."""
    kinds = left.dataType, right.dataType
    if collation_of(kinds[0]) == collation_of(kinds[1]) or not all(isinstance(kind, T.StringType) for kind in kinds):
        return
    given = " and ".join(f"{f.name!r} is {f.dataType.simpleString()}" for f in (left, right))
    raise PlanError(
        f"keys of different collations do not compare: {given}; give both one collation, for example "
        f"F.collate({right.name!r}, {collation_of(kinds[0]) or 'UTF8_BINARY'!r}).",
        argument="on",
    )


def refuse_collated(field: T.StructField, what: str) -> None:
    """`PlanError` for a collated key where keys are compared by their bytes."""
    if collation_of(field.dataType) is not None:
        raise PlanError(
            f"{what}: column {field.name!r} is {field.dataType.simpleString()}, and these keys are compared by their "
            f"bytes; use F.col({field.name!r}).cast('string') for equal bytes, or lower of that where letters of both "
            f"cases are to be equal, on both sides.",
            argument=what,
        )
