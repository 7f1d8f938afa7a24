"""Plans a query block by block, innermost first, and puts the rows of each planned join in place of its FROM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import TokenType as T

from dovetail.errors import UnsupportedError
from dovetail.rewrite.asof import asof_joined
from dovetail.rewrite.blocks import Block, Join, Node, Relation, find_blocks, joins_of, relation_tree, relations_of
from dovetail.rewrite.conditions import (
    EQUALITIES,
    Condition,
    IntervalCall,
    find_functions,
    find_inequalities,
    find_overlaps,
    read_condition,
)
from dovetail.rewrite.inequality import inequality_joined
from dovetail.rewrite.interval import Pair, interval_joined
from dovetail.rewrite.names import Input, Scope
from dovetail.rewrite.query import NO_PREDICATE, Merged, Part, Query, Report, Using, Views, run
from dovetail.rewrite.text import Patches, Piece, Source, conjuncts, escaped
from dovetail.spark.frames import quoted

INEQUALITIES = (T.LT, T.LTE, T.GT, T.GTE)
# Join types through which a condition of WHERE reaches the left or the right side.
REACHES_LEFT = ("inner", "left", "left_semi", "left_anti")
REACHES_RIGHT = ("inner", "right")


class BlockPlan:
    """One SELECT block: reads its FROM and WHERE with Spark's catalog, and plans its interval and as-of joins."""

    def __init__(self, query: Query, block: Block) -> None:
        self.query, self.block = query, block
        self.hints = tuple(query.source.hints_of(block.start))
        self.parts: dict[Relation, Part] = {}
        self.where: list[Condition] = []
        self.consumed: list[Condition] = []

    def run(self) -> None:
        """Plan the block, and replace its FROM by what was planned."""
        tree = relation_tree(self.block.relations) if self.block.relations else None
        if self.block.relations and self._promising():
            if tree is None:
                self.query.report.leave(self.block.relations.text, "a FROM with PIVOT or several ON is not read")
            elif joins_of(tree):
                self._plan(tree)
        elif tree is not None and joins_of(tree):
            self.query.report.leave(_one_line(self.block.relations), NO_PREDICATE)

    def _promising(self) -> bool:
        kinds = [self.block.source.kind(number) for number in self.block.own()]
        called = any(self.block.start <= call.piece.start < self.block.stop for call in self.query.calls)
        return called or any(kind in (T.ASOF, T.BETWEEN, *INEQUALITIES) for kind in kinds)

    def _plan(self, tree: Node) -> None:
        if self.block.recursive:
            self.query.report.leave(_one_line(self.block.relations), "it stands in a WITH RECURSIVE")
            return
        relations = relations_of(tree)
        self.parts = dict(zip(relations, self.query.load(relations, self.block), strict=True))
        aliases = [self.query.fold(each.alias) for part in self.parts.values() for each in part.inputs]
        if len(set(aliases)) < len(aliases):
            self.query.report.leave(_one_line(self.block.relations), "two inputs have one name; give them aliases")
            return
        if self.block.where:
            self.where = self._read(self.block.where, self._visible(tree))
        part = self._flat(tree) or self._walk(tree, self.where)
        if part.exposed:
            self._replace(part)

    def _replace(self, part: Part) -> None:
        patches, relations = self.query.patches, self.block.relations
        assert relations is not None, "only blocks with FROM are planned"  # noqa: S101  (by run)
        patches.add(relations.span, part.text)
        hidden = escaped(", ".join(map(quoted, part.exposed)))
        for star in self.block.stars():
            if star.names is None:
                patches.add(star.piece.span, f"* EXCEPT ({hidden})")
            else:
                at = self.block.source.tokens[star.names].start
                patches.add((at, at), f"{hidden}, ")
        for condition in self.consumed:
            if condition in self.where:
                patches.add(condition.piece.span, "TRUE")

    def _read(self, piece: Piece, inputs: tuple[Input, ...]) -> list[Condition]:
        scope = Scope(inputs, self.query.fold)
        return [read_condition(each, scope, self.query.calls) for each in conjuncts(piece)]

    def _visible(self, node: Node) -> tuple[Input, ...]:
        if isinstance(node, Relation):
            return self.parts[node].inputs
        left = self._visible(node.left)
        return left if node.how in ("left_semi", "left_anti") else left + self._visible(node.right)

    def _walk(self, node: Node, may: Sequence[Condition]) -> Part:
        """The part for a node, joined in the order of the text; `may` are the conditions of WHERE that apply to it."""
        if isinstance(node, Relation):
            return self._filtered(self.parts[node], may)
        left = self._walk(node.left, may if node.how in REACHES_LEFT else ())
        # WHERE filters the right rows that an as-of join has found, not those that it searches.
        right = self._walk(node.right, may if node.how in REACHES_RIGHT and not node.asof else ())
        must = self._read(node.on, left.inputs + right.inputs) if node.on else []
        if node.asof:
            must += self._read(node.match, left.inputs + right.inputs) if node.match else []
            return self._asof(node, Pair(self.query, left, right, node.how, self.hints), must)
        if node.merges:
            self._leave(left, right, node.how, "USING and NATURAL merge columns; say the equality in ON")
            return self._as_written(node, left, right)
        part = self._joined(left, right, node.how, must, may if node.how == "inner" else ())
        return part or self._as_written(node, left, right)

    def _asof(self, node: Join, pair: Pair, must: Sequence[Condition]) -> Part:
        frame = asof_joined(pair, must, node.using if node.merges else None)
        semi = node.how in ("left_semi", "left_anti")
        inputs = pair.left.inputs if semi else pair.left.inputs + pair.right.inputs
        if not node.merges:
            return self.query.planned(self.block, frame, inputs)
        columns = tuple(self._merged(pair, name) for name in node.using)
        if semi:  # Spark shows the columns of USING first
            (each, *more) = inputs
            order = {column.left: n for n, column in enumerate(columns)}
            ranked = sorted(zip(each.columns, each.names, strict=True), key=lambda at: order.get(at[1], len(order)))
            shown = replace(each, columns=tuple(c for c, _ in ranked), names=tuple(n for _, n in ranked))
            return self.query.planned(self.block, frame, (shown, *more))
        if any(
            self.block.source.kind(n) is T.STAR and self.block.source.kind(n - 1) is T.DOT for n in self.block.own()
        ):
            raise UnsupportedError(
                f"{pair.left.shown} ASOF JOIN {pair.right.shown} USING: name the columns instead of writing a star "
                "of one input."
            )
        return self.query.merged(self.block, frame, (pair.left, pair.right), Using(columns, node.how))

    def _merged(self, pair: Pair, name: str) -> Merged:
        sides = (Scope(part.inputs, self.query.fold).resolve([name]) for part in (pair.left, pair.right))
        left, right = (found[1] if found else "" for found in sides)
        kept = pair.right if pair.how == "right" else pair.left
        shown = next(
            column
            for each in kept.inputs
            for column, ours in zip(each.columns, each.names, strict=True)
            if ours in (left, right)
        )
        return Merged(left, right, shown)

    def _leave(self, left: Part, right: Part, how: str, why: str) -> None:
        self.query.report.leave(f"{left.shown} {how.replace('_', ' ')} join {right.shown}", why)

    def _filtered(self, part: Part, may: Sequence[Condition]) -> Part:
        """The relation without rows that WHERE drops, so that they are not counted, sampled or joined."""
        for condition in may:
            term = condition.whole
            if term is None or term.inputs != part.numbers:
                continue
            if not term.plain:
                break  # it may protect those after it: where kind = 'n' and cast(value as int) > 3
            (number,) = part.numbers
            self.query.rows[number] = self.query.rows[number].where(term.sql)
        return part

    def _joined(
        self, left: Part, right: Part, how: str, must: Sequence[Condition], may: Sequence[Condition]
    ) -> Part | None:
        reach = left.numbers | right.numbers
        open_ = [each for each in may if each not in self.consumed and each.inputs and each.inputs <= reach]
        pair = Pair(self.query, left, right, how, self.hints)
        outcome, why = interval_joined(pair, must, open_), ""
        if isinstance(outcome, str):
            why, outcome = outcome, inequality_joined(pair, must, open_)
        if isinstance(outcome, str):
            self._leave(left, right, how, outcome if why.startswith(NO_PREDICATE) else why)
            return None
        self.consumed += outcome.consumed
        for condition in (*must, *outcome.consumed):
            self.query.planned_calls |= {call.piece.start for call in condition.calls}
        inputs = left.inputs if how in ("left_semi", "left_anti") else left.inputs + right.inputs
        return self.query.planned(self.block, outcome.frame, inputs)

    def _as_written(self, node: Join, left: Part, right: Part) -> Part:
        criterion = self.query.patches.render(node.criterion.span) if node.criterion else ""
        text = f"{left.text} {escaped(node.words)} {_wrapped(right)} {criterion}".rstrip()
        semi = node.how in ("left_semi", "left_anti")
        inputs, exposed = (
            (left.inputs, left.exposed) if semi else (left.inputs + right.inputs, left.exposed + right.exposed)
        )
        merged = node.merges or left.merged or (right.merged and not semi)
        return self.query.plain(self.block, text, inputs, exposed, merged)

    def _flat(self, tree: Node) -> Part | None:
        """A plan of inner joins: conditions are evaluated as early as possible, linked inputs are joined first."""
        joins = joins_of(tree)
        if any(join.how != "inner" or join.merges or join.asof for join in joins):
            return None
        must = [
            condition
            for join in joins
            if join.on
            for condition in self._read(join.on, self._visible(join.left) + self._visible(join.right))
        ]
        parts = list(self.parts.values())
        if any(each.whole is None for each in must) or any(part.inputs[0].opaque for part in parts):
            return None
        for part in parts:
            self._filtered(part, self.where)
        whole = self._chain(parts, must)
        in_order = [each.number for each in whole.inputs] == sorted(whole.numbers)
        planned = len(whole.exposed) == sum(len(each.names) for each in whole.inputs)
        if in_order or planned or not whole.exposed:
            return whole
        return self.query.planned(self.block, whole.frame(), whole.inputs)

    def _chain(self, parts: list[Part], must: list[Condition]) -> Part:
        """The parts joined; conditions of ON that were used are removed from `must`."""
        current, *rest = parts
        while rest:
            place = self._next(current, rest, [*must, *self.where])
            # Parts without a link to the rest are joined with each other first, and the two results last.
            following, rest = (self._chain(rest, must), []) if place is None else (rest.pop(place), rest)
            reach = current.numbers | following.numbers
            here = [each for each in must if each.inputs is not None and each.inputs <= reach]
            must[:] = [each for each in must if each not in here]
            part = self._joined(current, following, "inner", here, self.where)
            current = part or self._inner(current, following, here)
        return current

    def _next(self, current: Part, rest: list[Part], conditions: Sequence[Condition]) -> int | None:
        """The part to join next: one linked by an interval predicate, by an equality, or else by an inequality."""
        for linked in (find_functions, find_overlaps, _equalities, find_inequalities):
            for place, part in enumerate(rest):
                if linked(conditions, current.numbers, part.numbers):
                    return place
        return None

    def _inner(self, left: Part, right: Part, here: Sequence[Condition]) -> Part:
        reach = left.numbers | right.numbers
        also = [each for each in self.where if each.inputs and each.inputs <= reach and each.whole and each.whole.plain]
        said = " AND ".join(f"({self.query.patches.render(each.piece.span)})" for each in (*here, *also))
        text = f"{left.text} {'JOIN' if said else 'CROSS JOIN'} {_wrapped(right)} {f'ON {said}' if said else ''}"
        inputs, exposed = left.inputs + right.inputs, left.exposed + right.exposed
        return self.query.plain(self.block, text.rstrip(), inputs, exposed, False)


def _equalities(conditions: Sequence[Condition], left: frozenset[int], right: frozenset[int]) -> bool:
    found = (comparison.across(left, right) for each in conditions for comparison in each.comparisons)
    return any(each is not None and each.operator in EQUALITIES for each in found)


def _wrapped(part: Part) -> str:
    return part.text if part.single else f"({part.text})"


def _one_line(piece: Piece | None) -> str:
    return " ".join(piece.text.split()) if piece else ""


def plan_query(
    spark: SparkSession, source: Source, calls: Sequence[IntervalCall], views: Views
) -> tuple[DataFrame, Report]:
    """The result of a query over views that it names, and the report about its joins.

    Spark first analyses the query by itself, with interval functions as comparisons and as-of joins as plain joins. So
    Spark reports what is wrong with it, and the planned query must have the same columns.
    """
    _check_snapshots(source)
    reference = run(spark, _for_spark(source, calls), views)
    query = Query(spark, source, calls, views)
    for block in find_blocks(source):
        BlockPlan(query, block).run()
    _all_planned(query)
    query.leave_unused_hints()
    if query.asof_joins < len(source.asof):
        raise UnsupportedError(
            "an ASOF JOIN of this query cannot be planned here: its FROM has PIVOT, stands in a WITH RECURSIVE, or "
            "names two inputs alike. Give inputs aliases, or put the join in a subquery."
        )
    if not query.report.joins:
        return reference, query.report
    try:
        frame = query.run(query.patches.render())
        trouble = _difference(frame, reference)
    except AnalysisException as error:
        trouble = str(error).partition("\n")[0]
    if not trouble:
        return frame, query.report
    if calls or source.asof:
        raise UnsupportedError(f"the query around its joins cannot be kept: {trouble}. Put the join in a subquery.")
    query.report.leave_all(trouble)
    return reference, query.report


def _check_snapshots(source: Source) -> None:
    """`UnsupportedError` for `r FOR SYSTEM_TIME AS OF o.ts`: Spark's time travel takes a constant, not a column."""
    words = [token.text.lower() for token in source.tokens]
    for number, word in enumerate(words[:-3]):
        is_snapshot = word in ("system_time", "timestamp") and words[number + 1 : number + 3] == ["as", "of"]
        is_column = source.kind(number + 3) in (T.VAR, T.IDENTIFIER) and source.kind(number + 4) is not T.L_PAREN
        if is_snapshot and is_column:
            raise UnsupportedError(
                f"{source.piece(number, number + 4).text}...: a table as of the time of each row is a temporal join, "
                "which is not planned from this text. Where the table has the time of each change, write a ASOF JOIN b "
                "ON a.k = b.k AND a.t >= b.t; where it has the first time and the end of validity, use interval_join; "
                "for streams, enrich(at=...)."
            )


def _for_spark(source: Source, calls: Sequence[IntervalCall]) -> str:
    patches = Patches(source.text)
    for call in calls:
        patches.add(call.piece.span, escaped(call.comparisons()))
    for number in source.asof:  # the same columns, if not the same rows
        patches.add(source.piece(number, number + 1).span, "")
    for match in source.matches.values():
        patches.add(match.span, "")
    return patches.render()


def _all_planned(query: Query) -> None:
    for call in query.calls:
        if call.piece.start not in query.planned_calls:
            reasons = "".join(f" {what}: {why}." for what, why in query.report.spark)
            raise UnsupportedError(
                f"{call.piece.text} cannot be planned here. An interval function must stand in the ON of a join, or in "
                "the WHERE of an inner one, alone or between ANDs, over the bounds of one input, then of the other."
                f"{_instead_of_exists(query.source, call.piece)}{reasons}"
            )


def _instead_of_exists(source: Source, call: Piece) -> str:
    """A hint for a call inside EXISTS: the text to write instead; empty elsewhere."""
    around = [a for a, b in source.partner.items() if a < call.start < b and source.kind(a - 1) is T.EXISTS]
    if not around:
        return ""
    negated = source.kind(max(around) - 2) is T.NOT
    kind, word = ("ANTI", "NOT EXISTS") if negated else ("SEMI", "EXISTS")
    return f" {word} becomes a join: instead of it write LEFT {kind} JOIN b ON ..., with the same condition."


def _difference(frame: DataFrame, reference: DataFrame) -> str:
    ours, sparks = ([(f.name, f.dataType.simpleString()) for f in each.schema] for each in (frame, reference))
    return "" if ours == sparks else f"the columns would be {ours}, but Spark's are {sparks}"
