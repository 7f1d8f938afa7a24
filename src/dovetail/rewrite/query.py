"""Keeps a query while it is planned: its text with replacements, its frames, parts of FROM, and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import UnsupportedError
from dovetail.rewrite.blocks import Block, Relation, alias_and_qualifiers, within
from dovetail.rewrite.conditions import IntervalCall
from dovetail.rewrite.hints import Hint
from dovetail.rewrite.names import Input, Names
from dovetail.rewrite.text import Patches, Source, escaped, select_from
from dovetail.spark.frames import quoted

WORDS = {"left_semi": "left semi", "left_anti": "left anti"}

JOINS = ("interval", "inequality", "as-of")
NO_PREDICATE = "no interval predicate"

Views = dict[str, DataFrame]
"""Frames by the names that query text has for them."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """One interval join."""

    left: str
    right: str
    how: str
    relation: str
    bounds: tuple[str, str, str, str]
    keys: tuple[str, ...]
    residual: tuple[str, ...]
    kind = "interval_join"
    name = "interval"

    def lines(self) -> list[str]:
        """The join in a few lines."""
        ls, le, rs, re = self.bounds
        return [
            f"{self.left} {WORDS.get(self.how, self.how)} join {self.right}",
            f"relation: {self.relation}",
            f"intervals: ({ls}, {le}) with ({rs}, {re})",
            f"keys: {', '.join(self.keys) or 'none'}",
            f"residual: {' and '.join(self.residual) or 'none'}",
        ]


@dataclass(frozen=True, slots=True)
class RecognisedInequality:
    """One join by inequalities."""

    left: str
    right: str
    how: str
    inequalities: str
    keys: tuple[str, ...]
    residual: tuple[str, ...]
    kind = "interval_join"
    name = "inequality"

    def lines(self) -> list[str]:
        """The join in a few lines."""
        return [
            f"{self.left} {WORDS.get(self.how, self.how)} join {self.right}",
            f"inequalities: {self.inequalities}",
            f"keys: {', '.join(self.keys) or 'none'}",
            f"residual: {' and '.join(self.residual) or 'none'}",
        ]


@dataclass(frozen=True, slots=True)
class RecognisedAsof:
    """One as-of join."""

    left: str
    right: str
    how: str
    comparison: str
    keys: tuple[str, ...]
    others: tuple[str, ...] = ()
    kind = "asof_join"
    name = "as-of"

    def lines(self) -> list[str]:
        """The join in a few lines."""
        return [
            f"{self.left} as-of {WORDS.get(self.how, self.how)} join {self.right}",
            f"times: {self.comparison}",
            f"keys: {', '.join(self.keys) or 'none'}",
            *([f"of one input: {' and '.join(self.others)}"] if self.others else []),
        ]


AnyRecognised = Recognised | RecognisedInequality | RecognisedAsof


@dataclass(slots=True)
class Report:
    """The report of one query: joins that were recognised, and parts that Spark plans."""

    joins: list[AnyRecognised] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)  # calls of table functions
    hints: list[list[str]] = field(default_factory=list)  # those of each join
    spark: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, what: str, why: str) -> None:
        """Note that Spark plans this part, and why."""
        if (what, why) not in self.spark:
            self.spark.append((what, why))

    def leave_all(self, why: str) -> None:
        """Note that Spark plans the whole query."""
        self.joins.clear()
        self.hints.clear()
        self.leave("the whole query", why)

    def text(self) -> str:
        """The report for a reader."""
        counts = Counter(join.name for join in sorted(self.joins, key=lambda join: JOINS.index(join.name)))
        heads = [f"{count} {kind} join{'s' if count != 1 else ''}" for kind, count in counts.items()]
        if self.tables:
            heads.append(f"{len(self.tables)} table function{'s' if len(self.tables) > 1 else ''}")
        lines = [", ".join(heads) or "no interval join; the query goes to Spark as written"]
        lines += [f"- {call}" for call in self.tables]
        for number, (join, hints) in enumerate(zip(self.joins, self.hints, strict=True), 1):
            first, *rest = [*join.lines(), *(f"hint: {hint}" for hint in hints)]
            lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
        if self.spark:
            lines.append("left to Spark:")
            lines += [f"- {what}: {why}" for what, why in self.spark]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of FROM: its text, its inputs, and its rows under our names, built on demand."""

    text: str
    inputs: tuple[Input, ...]
    frame: Callable[[], DataFrame]
    single: bool  # one relation: needs no parentheses
    exposed: tuple[str, ...] = ()  # our names that a star would show
    merged: bool = False  # USING or NATURAL made one column of two

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of its inputs."""
        return frozenset(each.number for each in self.inputs)

    @property
    def shown(self) -> str:
        """Its inputs by name."""
        return ", ".join(each.alias for each in self.inputs)


@dataclass(frozen=True, slots=True)
class Merged:
    """Two columns that USING makes one: our names for them, and the names that they have."""

    left: str
    right: str
    shown: str


@dataclass(frozen=True, slots=True)
class Using:
    """The columns that USING merges, and the join."""

    columns: tuple[Merged, ...]
    how: str

    def value(self, view: str, column: Merged) -> str:
        """SQL for the one column: that of the side whose rows are all kept."""
        left, right = (f"{view}.{quoted(name)}" for name in (column.left, column.right))
        return f"coalesce({left}, {right})" if self.how == "full" else right if self.how == "right" else left

    def of(self, each: Input) -> list[tuple[str, str]]:
        """The merged columns of an input, with our names for them."""
        ours = {name for column in self.columns for name in (column.left, column.right)}
        return [pair for pair in zip(each.columns, each.names, strict=True) if pair[1] in ours]


def run(spark: SparkSession, text: str, views: Views) -> DataFrame:
    """The result of rendered text, which names views; as temporary views they exist only while Spark analyses it."""
    for name in views:
        text = text.replace(quoted(name), f"{{{name}}}")
    sql = type(spark).sql  # Spark's own, where `dovetail.install` has put ours into its place
    return sql(spark, text, None, **views) if views else sql(spark, text.format())


class Query:
    """The text and the frames of a query; every planned join becomes a frame that the text names."""

    def __init__(self, spark: SparkSession, source: Source, calls: Sequence[IntervalCall], views: Views) -> None:
        self.spark, self.source, self.calls = spark, source, tuple(calls)
        self.patches = Patches(source.text)
        self.report = Report()
        self.names = Names(token.text for token in source.tokens)
        self.rows: dict[int, DataFrame] = {}
        self.planned_calls: set[int] = set()
        self.asof_joins = 0
        sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
        self.fold: Callable[[str], str] = str if sensitive else str.lower
        self._words = {token.text.lower() for token in source.tokens}
        self._views = dict(views)
        self._unused = list(source.hints)
        self._inputs = 0

    def recognised(self, join: AnyRecognised, hints: Sequence[Hint]) -> None:
        """Report a join that was planned, with the hints that are for it."""
        used = [hint for hint in hints if hint.join == join.kind]
        self.report.joins.append(join)
        self.report.hints.append([hint.text for hint in used])
        self._unused = [hint for hint in self._unused if hint not in used]

    def leave_unused_hints(self) -> None:
        """Report the hints of SELECTs in which no such join was planned."""
        for hint in self._unused:
            self.report.leave(hint.text, f"its SELECT has no {hint.join} that was recognised")

    def run(self, text: str) -> DataFrame:
        """The result of rendered text over the frames so far."""
        return run(self.spark, text, self._views)

    def load(self, relations: Sequence[Relation], block: Block) -> list[Part]:
        """The relations of FROM as parts; columns that the query does not name are left out, unless it has a star."""
        frames = [self._frame(relation, block) for relation in relations]
        for frame in frames:
            self.names.reserve(frame.columns if frame is not None else ())
        everything = block.shows_all()
        return [self._part(relation, frame, everything) for relation, frame in zip(relations, frames, strict=True)]

    def _frame(self, relation: Relation, block: Block) -> DataFrame | None:
        if relation.lateral:
            return None
        try:
            frame = self.run(within(block, select_from(self.patches.render(relation.piece.span)), self.patches))
            return frame if frame.columns else None
        except AnalysisException:  # a correlated subquery
            return None

    def _part(self, relation: Relation, frame: DataFrame | None, everything: bool) -> Part:
        text = self.patches.render(relation.piece.span)
        alias, qualifiers = alias_and_qualifiers(relation)
        number, self._inputs = self._inputs, self._inputs + 1
        if frame is None:
            hidden = Input(number, alias or relation.piece.text, qualifiers, (), (), opaque=True)
            return Part(text, (hidden,), lambda: _refuse(f"{hidden.alias} depends on other inputs"), True)
        if alias is None:
            alias = self.names.fresh("input")
            text = f"{text} AS {quoted(alias)}"
        names = [self.names.fresh(f"{alias}__{column}") for column in frame.columns]
        wanted = [n for n, column in enumerate(frame.columns) if everything or column.lower() in self._words] or [0]
        columns, kept = (tuple(each[n] for n in wanted) for each in (frame.columns, names))
        self.rows[number] = frame.toDF(*names).select(*map(quoted, kept))
        return Part(text, (Input(number, alias, qualifiers, columns, kept),), lambda: self.rows[number], True)

    def plain(self, block: Block, text: str, inputs: tuple[Input, ...], exposed: tuple[str, ...], merged: bool) -> Part:
        """A join that Spark plans, as text."""

        def frame() -> DataFrame:
            if any(each.opaque for each in inputs):
                _refuse("an input depends on other inputs")
            columns = [
                f"{quoted(each.alias)}.{quoted(column)} AS {quoted(name)}"
                for each in inputs
                for column, name in zip(each.columns, each.names, strict=True)
            ]
            return self.run(within(block, select_from(text, escaped(", ".join(columns))), self.patches))

        return Part(text, inputs, frame, False, exposed, merged)

    def planned(self, block: Block, frame: DataFrame, inputs: tuple[Input, ...]) -> Part:
        """A frame in place of a join: every input keeps its name and its order.

        One view holds the rows. Each input is a lateral one-row query over it, which Spark folds into a projection.
        """
        inputs = tuple(sorted(inputs, key=lambda each: each.number))
        names = tuple(name for each in inputs for name in each.names)
        field, view = self._view(frame, names)
        parts = [f"{quoted(field)} AS {view}"]
        for each in inputs:
            parts.append(_lateral(each.alias, _columns_of(view, each.columns, each.names)))
            self._shorten(block, each)
        return Part(" ".join(parts), inputs, lambda: self._views[field], False, names)

    def merged(self, block: Block, frame: DataFrame, sides: tuple[Part, Part], using: Using) -> Part:
        """A frame in place of a join with USING: merged columns come first, as in Spark, and keep their inputs' names.

        They are columns of an input of their own. `a.k` is a field of a struct that stands in their place in `a`.
        """
        inputs = tuple(sorted(sides[0].inputs + sides[1].inputs, key=lambda each: each.number))
        names = tuple(name for each in inputs for name in each.names)
        field, view = self._view(frame, names)
        values = [f"{using.value(view, column)} AS {quoted(column.shown)}" for column in using.columns]
        parts = [f"{quoted(field)} AS {view}", _lateral(self.names.fresh("dovetail_using"), values)]
        kept, hidden = [], list(names)
        for each in inputs:
            merged = using.of(each)
            rest = [pair for pair in zip(each.columns, each.names, strict=True) if pair not in merged]
            columns, ours = (tuple(pair[n] for pair in rest) for n in (0, 1))
            shown = _columns_of(view, columns, ours)
            self._shorten(block, each)
            if merged:
                struct = self.names.fresh("dovetail_merged")
                fields = ", ".join(f"{view}.{quoted(name)} AS {quoted(column)}" for column, name in merged)
                shown.append(f"struct({fields}) AS {quoted(struct)}")
                hidden.append(struct)
                self._into(block, each, {self.fold(column) for column, _ in merged}, struct)
            parts.append(_lateral(each.alias, shown))
            kept.append(replace(each, columns=columns, names=ours))
        return Part(" ".join(parts), tuple(kept), lambda: self._views[field], False, tuple(hidden), merged=True)

    def _view(self, frame: DataFrame, names: Sequence[str]) -> tuple[str, str]:
        """The name of a view with the rows of a frame, and a quoted alias for it."""
        field = self.names.fresh("dovetail_rows")
        self._views[field] = frame.select(*map(quoted, names))
        return field, quoted(self.names.fresh("dovetail_join"))

    def _into(self, block: Block, each: Input, columns: set[str], struct: str) -> None:
        """Write `a.k` as `a.struct.k` for these columns."""
        tokens = self.source.tokens
        ends = {tuple(map(self.fold, written)) for written in each.qualifiers}
        for number in block.own():
            for written in ends:
                end = number + 2 * len(written)
                words = [self.fold(token.text) for token in tokens[number : end + 1]]
                dots = words[1::2] == ["."] * len(written) and tokens[number - 1].text != "."
                if dots and tuple(words[0:-1:2]) == written and words[-1:][0] in columns:
                    span = (tokens[number].start, tokens[end - 2].end + 1)
                    self.patches.add(span, escaped(f"{quoted(each.alias)}.{quoted(struct)}"))

    def _shorten(self, block: Block, each: Input) -> None:
        """Write `db.t.column` as `t.column`: the lateral query has only the short name."""
        tokens, long = self.source.tokens, [written for written in each.qualifiers if len(written) > 1]
        for number in block.own():
            for written in long:
                end = number + 2 * len(written) - 1
                words = [self.fold(token.text) for token in tokens[number : end + 1]]
                if words[1::2] == ["."] * len(written) and words[0:-1:2] == list(map(self.fold, written)):
                    span = (tokens[number].start, tokens[end - 1].end + 1)
                    self.patches.add(span, escaped(quoted(each.alias)))


def _lateral(alias: str, columns: Sequence[str]) -> str:
    return f"JOIN LATERAL (SELECT {escaped(', '.join(columns))}) AS {escaped(quoted(alias))}"


def _columns_of(view: str, columns: Sequence[str], names: Sequence[str]) -> list[str]:
    return [f"{view}.{quoted(name)} AS {quoted(column)}" for column, name in zip(columns, names, strict=True)]


def _refuse(why: str) -> DataFrame:
    raise UnsupportedError(why)
