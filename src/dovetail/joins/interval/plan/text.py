"""Joins by text bounds: over codes in the order of the texts, with the texts themselves as a condition.

A code is the number that the first bytes of a text make, after those that all texts begin with. Texts in order have
codes in order, and texts with one code are told apart by the condition. Texts compare by their bytes, as Spark's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from uuid import uuid4

from pyspark.sql import DataFrame

from dovetail.errors import PlanError
from dovetail.joins.interval.plan.sides import Bound, as_column, bound_columns, inverted_error, late_error
from dovetail.joins.interval.relation import EQUALITIES, Relation
from dovetail.joins.interval.request import Request
from dovetail.request import Closed, output_names
from dovetail.spark.frames import find_column, quoted
from dovetail.spark.inputs import check_input, check_texts, is_text

_BYTES = 7  # of a text that make its code: a bigint holds them with its sign


@dataclass(frozen=True, slots=True)
class TextCodes:
    """Codes of texts that begin with these bytes; others come before or after all of them."""

    prefix: bytes

    @classmethod
    def of(cls, texts: Sequence[tuple[DataFrame, Sequence[str]]]) -> TextCodes:
        """The codes for these columns of inputs; runs one job for the first and the last text of all."""
        ends = [_ends(frame, columns) for frame, columns in texts]
        rows = ends[0] if len(ends) == 1 else ends[0].union(ends[1])
        found = [bytes(value) for row in rows.collect() for value in row if value is not None]
        same = takewhile(lambda values: len(set(values)) == 1, zip(*found, strict=False))
        return cls(bytes(values[0] for values in same))

    def sql(self, text: str) -> str:
        """SQL: the code of a text; null for null."""
        value, length = f"cast({text} as binary)", len(self.prefix)
        code = f"cast(conv(rpad(hex(substring({value}, {length + 1}, {_BYTES})), {2 * _BYTES}, '0'), 16, 10) as bigint)"
        if not length:
            return code
        shared = f"X'{self.prefix.hex()}'"
        beyond = f"if({value} < {shared}, -1L, {1 << 8 * _BYTES}L)"
        return f"if({text} is null, null, if(substring({value}, 1, {length}) = {shared}, {code}, {beyond}))"


def _ends(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    values = [f"cast({column} as binary)" for column in columns]
    first, last = (
        f"{function}({each})" if len(columns) == 1 else f"{pick}({', '.join(f'{function}({x})' for x in values)})"
        for function, pick, each in (("min", "least", values[0]), ("max", "greatest", values[0]))
    )
    return frame.selectExpr(f"{first} as first", f"{last} as last")


def coded_texts(
    left: DataFrame, right: DataFrame, request: Request, codes: TextCodes | None = None
) -> tuple[DataFrame, DataFrame, Request]:
    """The inputs and the request with codes in place of text bounds; other bounds stay as they are.

    Without given `codes` a job finds those that tell the texts apart best.
    """
    for name, frame in (("left", left), ("right", right)):
        check_input(name, frame, "an interval join")
    bounds = (
        bound_columns("left", left, request.left_interval, "left_interval"),
        bound_columns("right", right, request.right_interval, "right_interval"),
    )
    kinds = [kind for side in bounds for _, kind in side]
    if not all(map(is_text, kinds)):
        return left, right, request
    check_texts("interval bounds", kinds, "left_interval")
    _check_request(request)
    frames, closed = (left, right), (request.relation.left_closed, request.relation.right_closed)
    sides = [_TextSide(*each) for each in zip(("left", "right"), frames, bounds, closed, strict=True)]
    codes = codes or TextCodes.of([(side.frame, [text for text, _ in side.bounds]) for side in sides])
    if request.invalid == "error":
        for side in sides:
            side.check()
    mark = f"text_{uuid4().hex[:8]}_"
    one, other = (side.coded(codes, mark, request.invalid) for side in sides)
    names, columns = names_in_pairs(left, right, request)
    texts = [_named(text, columns[number]) for number, side in enumerate(bounds) for text, _ in side]
    exact = as_column(request.relation.sql(*texts))
    joined = replace(
        request,
        left_interval=(f"{mark}left_start", f"{mark}left_end"),
        right_interval=(f"{mark}right_start", f"{mark}right_end"),
        relation=_wider(request.relation),
        condition=exact if request.condition is None else exact & as_column(request.condition),
        invalid="null",
        columns=request.columns or tuple(names),
    )
    return one, other, joined


def _check_request(request: Request) -> None:
    for argument, given, why in (
        ("keep", request.keep in ("first", "last"), "use keep='all' or 'any'"),
        ("with_overlap", request.with_overlap, "leave it out"),
        ("split_points", request.split_points is not None, "use partitions"),
        ("max_gap", request.slack is not None, "leave out max_gap, min_overlap and min_fraction"),
    ):
        if given:
            raise PlanError(f"{argument} is not for text bounds, which have no lengths; {why}.", argument=argument)


def _wider(relation: Relation) -> Relation:
    """A relation that holds for the codes of every pair that satisfies this one."""
    names = set[str]()
    for name in relation.names:
        if name in EQUALITIES:
            names.add(name)
        else:
            names |= {"before": {"before", "meets"}, "after": {"after", "met_by"}}.get(name, {"overlapping"})
    return Relation(frozenset(names), False, "both", "both")


@dataclass(frozen=True, slots=True)
class _TextSide:
    """An input whose bounds are texts."""

    name: str
    frame: DataFrame
    bounds: tuple[Bound, Bound]
    closed: Closed

    @property
    def _inverted(self) -> str:
        return f"{self.bounds[0][0]} > {self.bounds[1][0]}"

    def check(self) -> None:
        """`DataError` for intervals that end before they start, with up to five of them. Runs a small job."""
        rows = self.frame.where(self._inverted)
        some = rows.limit(5).collect()
        if some:
            raise inverted_error(self.name, rows.count(), [row.asDict() for row in some])

    def coded(self, codes: TextCodes, mark: str, invalid: str) -> DataFrame:
        """The input with codes of its bounds: null where the interval can match nothing."""
        (start, _), (end, _) = self.bounds
        frame = self.frame
        if invalid == "drop":
            frame = frame.where(f"not coalesce({self._inverted}, false)")
        usable = f"{start} {'<=' if self.closed == 'both' else '<'} {end}"
        if invalid == "error":  # none was found; this check is for rows added since
            usable = f"if({self._inverted}, raise_error('{late_error(self.name)}'), {usable})"
        return frame.selectExpr(
            "*",
            f"if({usable}, {codes.sql(start)}, null) as {mark}{self.name}_start",
            f"if({usable}, {codes.sql(end)}, null) as {mark}{self.name}_end",
        )


def names_in_pairs(
    left: DataFrame, right: DataFrame, request: Request
) -> tuple[list[str], tuple[dict[str, str], dict[str, str]]]:
    """The columns of the result, and the name in a pair of every column of either input."""
    shared = {find_column("right", right, key.right, "on"): key.left for key in request.keys if key.shared}
    suffixes = ("", request.suffixes[1]) if request.left_only else request.suffixes
    mine, theirs = output_names(left.columns, right.columns, set(shared), suffixes)
    names = list(left.columns) if request.left_only else [*mine.values(), *theirs.values()]
    equal = {key: mine[find_column("left", left, of, "on")] for key, of in shared.items()}
    return names, (mine, theirs | equal)


def _named(text: str, names: dict[str, str]) -> str:
    """SQL: a column of an input, or a field of it, under its name in a pair."""
    for column, name in names.items():
        if text == quoted(column) or text.startswith(f"{quoted(column)}."):
            return quoted(name) + text.removeprefix(quoted(column))
    raise AssertionError(f"{text} is a column of its input")
