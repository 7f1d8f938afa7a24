"""What `explain=True` tells: the interval and as-of joins of a query, and what Spark plans by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

WORDS = {"left_semi": "left semi", "left_anti": "left anti"}

NO_PREDICATE = "no interval predicate"


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
class RecognisedAsof:
    """One as-of join."""

    left: str
    right: str
    how: str
    comparison: str
    keys: tuple[str, ...]

    def lines(self) -> list[str]:
        """The join in a few lines."""
        return [
            f"{self.left} as-of {self.how} join {self.right}",
            f"times: {self.comparison}",
            f"keys: {', '.join(self.keys) or 'none'}",
        ]


@dataclass(slots=True)
class Report:
    """All that happened to one query."""

    joins: list[Recognised | RecognisedAsof] = field(default_factory=list)
    spark: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, what: str, why: str) -> None:
        """This part goes to Spark, for this reason."""
        if (what, why) not in self.spark:
            self.spark.append((what, why))

    def leave_all(self, why: str) -> None:
        """The whole query goes to Spark after all."""
        self.joins.clear()
        self.leave("the whole query", why)

    def text(self) -> str:
        """The report for a reader."""
        counts = {"interval": 0, "as-of": 0}
        for join in self.joins:
            counts["as-of" if isinstance(join, RecognisedAsof) else "interval"] += 1
        heads = [f"{count} {kind} join{'s' if count != 1 else ''}" for kind, count in counts.items() if count]
        lines = [", ".join(heads) or "no interval join; the query goes to Spark as written"]
        for number, join in enumerate(self.joins, 1):
            first, *rest = join.lines()
            lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
        if self.spark:
            lines.append("left to Spark:")
            lines += [f"- {what}: {why}" for what, why in self.spark]
        return "\n".join(lines)
