"""One query while it is planned: its text with replacements, the frames that the text names, and parts of FROM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import UnsupportedError
from dovetail.rewrite.blocks import Block
from dovetail.rewrite.calls import IntervalCall
from dovetail.rewrite.names import Input, Names
from dovetail.rewrite.relations import Relation, alias_and_qualifiers
from dovetail.rewrite.report import Report
from dovetail.rewrite.text import Patches, Source, escaped, quoted, select_from


@dataclass(frozen=True, slots=True)
class Part:
    """A part of FROM: its text, the inputs that it shows, and its rows under our names, built when asked for."""

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


class Query:
    """The text and the frames of a query; every interval join becomes a frame that the text names."""

    def __init__(self, spark: SparkSession, source: Source, calls: Sequence[IntervalCall]) -> None:
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
        self._views: dict[str, DataFrame] = {}
        self._inputs = 0

    def run(self, text: str) -> DataFrame:
        """The answer of rendered text; temporary views live only while Spark reads it."""
        return self.spark.sql(text, None, **self._views) if self._views else self.spark.sql(text.format())

    def within(self, block: Block, text: str) -> str:
        """A query that sees what the block sees by WITH."""
        for number, seen in enumerate(reversed(block.withs)):
            text = select_from(f"({text})") if number else text
            definitions = ", ".join(self.patches.render(piece.span) for piece in seen.definitions)
            text = f"WITH {'RECURSIVE ' if seen.recursive else ''}{definitions} {text}"
        return text

    def load(self, relations: Sequence[Relation], block: Block) -> list[Part]:
        """The relations of FROM, read; columns that the query names nowhere are left out, if no star asks for them."""
        frames = [self._frame(relation, block) for relation in relations]
        for frame in frames:
            self.names.reserve(frame.columns if frame is not None else ())
        everything = block.shows_all()
        return [self._part(relation, frame, everything) for relation, frame in zip(relations, frames, strict=True)]

    def _frame(self, relation: Relation, block: Block) -> DataFrame | None:
        if relation.lateral:
            return None
        try:
            frame = self.run(self.within(block, select_from(self.patches.render(relation.piece.span))))
            return frame if frame.columns else None
        except AnalysisException:  # it reads columns of the query around it
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
            return self.run(self.within(block, select_from(text, escaped(", ".join(columns)))))

        return Part(text, inputs, frame, False, exposed, merged)

    def planned(self, block: Block, frame: DataFrame, inputs: tuple[Input, ...]) -> Part:
        """A frame that takes the place of a join: every input can be named as before, in its old order.

        One view holds the rows. Each input is a lateral one-row query over it, which Spark folds into a projection.
        """
        inputs = tuple(sorted(inputs, key=lambda each: each.number))
        names = tuple(name for each in inputs for name in each.names)
        field = f"dovetail_{len(self._views)}"
        self._views[field] = frame.select(*map(quoted, names))
        view = quoted(self.names.fresh("dovetail_join"))
        parts = [f"{{{field}}} AS {view}"]
        for each in inputs:
            pairs = zip(each.columns, each.names, strict=True)
            columns = ", ".join(f"{view}.{quoted(name)} AS {quoted(column)}" for column, name in pairs)
            parts.append(f"JOIN LATERAL (SELECT {escaped(columns)}) AS {escaped(quoted(each.alias))}")
            self._shorten(block, each)
        return Part(" ".join(parts), inputs, lambda: self._views[field], False, names)

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


def _refuse(why: str) -> DataFrame:
    raise UnsupportedError(why)
