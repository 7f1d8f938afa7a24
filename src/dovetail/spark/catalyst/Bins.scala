package org.apache.spark.sql.dovetail

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Generate, Join, LogicalPlan, Project}
import org.apache.spark.sql.types.{ArrayType, LongType}

/** Adds bins to both sides of a join. */
object Bins {

  /** The join with an equality of bins beside its condition, and the columns that it had. */
  def join(join: Join, range: Overlap, layout: Layout): LogicalPlan = {
    val placed = layout.anchor match {
      case None => everywhere(join, range, layout)
      case Some(side) => anchored(join, range, layout, side)
    }
    Project(join.output, placed)
  }

  /** Inner joins: a row is in every bin that it touches, on the level of its length and on those above.
    *
    * Two rows are compared on the level of the longer one, in the first bin that they share, where one of them starts.
    * Rows that are at home on a level meet all rows there (kind 0 on the left), rows from below meet those at home.
    */
  private def everywhere(join: Join, range: Overlap, layout: Layout): LogicalPlan = {
    val (left, leftCell, leftStarts) = exploded(join.left, range.left, layout, isLeft = true)
    val (right, rightCell, rightStarts) = exploded(join.right, range.right, layout, isLeft = false)
    val condition = Seq(EqualTo(leftCell, rightCell), join.condition.get, Or(leftStarts, rightStarts))
    join.copy(left = left, right = right, condition = condition.reduceOption(And(_, _)))
  }

  private def exploded(plan: LogicalPlan, interval: Interval, layout: Layout, isLeft: Boolean) = {
    val (child, start, end) = withPlaces(plan, interval, layout)
    val home = Alias(level(Subtract(end, start), layout.widths), named("home"))()
    val levels = layout.widths.size
    val runs = layout.widths.indices.map { at =>
      def run(kind: Int): Expression = {
        def code(bin: Expression) = Add(Multiply(bin, Literal(4L * levels)), Literal(4L * at + 2L * kind))
        val (first, last) = (bin(start, layout, at), bin(end, layout, at))
        val rest = Sequence(code(Add(first, Literal(1L))), code(last), Some(Literal(4L * levels)), Some("UTC"))
        Concat(Seq(CreateArray(Seq(Add(code(first), Literal(1L)))), If(LessThan(first, last), rest, none)))
      }
      val atHome = if (isLeft || at == 0) run(0) else Concat(Seq(run(0), run(1)))
      val visiting = if (isLeft) run(1) else run(0)
      val isHere = EqualTo(home.toAttribute, Literal(at))
      If(isHere, atHome, if (at == 0) none else If(LessThan(home.toAttribute, Literal(at)), visiting, none))
    }
    val copies = explode(Project(child.output :+ home, child), if (levels == 1) runs.head else Concat(runs))
    val code = copies.output.last
    val cell = Alias(ShiftRight(code, Literal(1)), named("cell"))()
    val starts = Alias(EqualTo(BitwiseAnd(code, Literal(1L)), Literal(1L)), named("in"))()
    (Project(plan.output ++ Seq(cell, starts), copies), cell.toAttribute, starts.toAttribute)
  }

  /** Other joins: a row whose matches are counted is in one bin, that of its start, on the level of its length.
    *
    * A row of the other side is in all bins, on each level, in which a row that reaches it may start. Rows that are
    * longer than the widest bins are compared with all.
    */
  private def anchored(join: Join, range: Overlap, layout: Layout, side: Anchor): LogicalPlan = {
    val isLeft = side == AnchorLeft
    val (mine, theirs) = if (isLeft) (range.left, range.right) else (range.right, range.left)
    val (kept, copied) = if (isLeft) (join.left, join.right) else (join.right, join.left)
    val (one, oneCell) = single(kept, mine, layout)
    val (many, manyCell) = reached(copied, theirs, layout, mine.point)
    val condition = And(EqualTo(oneCell, manyCell), join.condition.get)
    join.copy(
      left = if (isLeft) one else many, right = if (isLeft) many else one, condition = Some(condition))
  }

  private def single(plan: LogicalPlan, interval: Interval, layout: Layout): (LogicalPlan, Attribute) = {
    val levels = layout.widths.size
    val (child, start, _) = withPlaces(plan, interval, layout)
    def code(at: Int): Expression = Add(Multiply(bin(start, layout, at), Literal(levels + 1L)), Literal(at.toLong))
    val cell = if (interval.point) code(0)
      else {
        val length = Subtract(interval.end, interval.start)
        val byLevel = (0 until levels).foldRight[Expression](Literal(levels.toLong)) { (at, wider) =>
          If(LessThanOrEqual(length, Literal(layout.widths(at))), code(at), wider)
        }
        If(IsNotNull(length), byLevel, Literal(null, LongType))
      }
    val named = Alias(cell, this.named("cell"))()
    (Project(plan.output :+ named, child), named.toAttribute)
  }

  private def reached(
      plan: LogicalPlan, interval: Interval, layout: Layout, points: Boolean): (LogicalPlan, Attribute) = {
    val levels = layout.widths.size
    val (child, start, end) = withPlaces(plan, interval, layout)
    val runs = layout.widths.indices.map { at =>
      def code(bin: Expression) = Add(Multiply(bin, Literal(levels + 1L)), Literal(at.toLong))
      // A little more than the width, because the length of the other row was rounded.
      val reach = if (points) start else clamped(Subtract(start, Literal(layout.widths(at) * 1.000001)), layout)
      Sequence(
        code(bin(reach, layout, at)), code(bin(end, layout, at)), Some(Literal(levels + 1L)), Some("UTC"))
    }
    val longer = if (points) Nil else Seq(CreateArray(Seq(Literal(levels.toLong))))
    val all = runs ++ longer
    val copies = explode(child, if (all.size == 1) all.head else Concat(all))
    val cell = Alias(copies.output.last, named("cell"))()
    (Project(plan.output :+ cell, copies), cell.toAttribute)
  }

  /** The plan with the places of start and end, moved into the range of the bins. */
  private def withPlaces(plan: LogicalPlan, interval: Interval, layout: Layout) = {
    val raw = Seq(interval.start, interval.end).map(Alias(_, named("raw"))())
    val places = raw.map(place => Alias(clamped(place.toAttribute, layout), named("place"))())
    val child = Project(plan.output ++ places, Project(plan.output ++ raw, plan))
    (child, places.head.toAttribute, places.last.toAttribute)
  }

  /** The place in the range of the bins: a NaN, which is above all numbers, at its end. */
  private def clamped(place: Expression, layout: Layout): Expression =
    If(GreaterThan(place, Literal(layout.high)), Literal(layout.high),
      If(LessThan(place, Literal(layout.low)), Literal(layout.low), place))

  private def bin(place: Expression, layout: Layout, at: Int): Expression =
    Cast(
      Divide(Subtract(place, Literal(layout.low)), Literal(layout.widths(at))), LongType, Some("UTC"), EvalMode.LEGACY)

  /** The narrowest level whose bins are no shorter; the last one for all that are longer. */
  private def level(length: Expression, widths: Seq[Double]): Expression =
    widths.init.zipWithIndex.foldRight[Expression](Literal(widths.size - 1)) { case ((width, at), wider) =>
      If(LessThanOrEqual(length, Literal(width)), Literal(at), wider)
    }

  private def explode(plan: LogicalPlan, codes: Expression): Generate = {
    val code = AttributeReference(named("code"), LongType, nullable = false)()
    Generate(Explode(codes), Nil, outer = false, None, Seq(code), plan)
  }

  private def none: Expression = Literal.default(ArrayType(LongType, containsNull = false))

  private def named(what: String): String = RangeJoin.Reserved + what
}
