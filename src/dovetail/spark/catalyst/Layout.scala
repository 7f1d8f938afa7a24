package org.apache.spark.sql.dovetail

import java.util.{Collections, LinkedHashMap, Map => JavaMap}

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan, Project}
import org.apache.spark.sql.classic
import org.apache.spark.sql.types.DoubleType

/** Rows of an input, different keys, and quantiles of the starts and the lengths of its intervals. */
case class SideStatistics(rows: Double, keys: Double, starts: Seq[Double], lengths: Seq[Double])

object SideStatistics {
  private val Cuts = (0 to 32).map(_ / 32.0)
  private val Kept = 64

  // They decide how fast a join is, not what it gives: hashes of plans and sizes are good enough to find them again.
  private val known: JavaMap[(Int, Int, BigInt), SideStatistics] = Collections.synchronizedMap(
    new LinkedHashMap[(Int, Int, BigInt), SideStatistics] {
      override def removeEldestEntry(eldest: JavaMap.Entry[(Int, Int, BigInt), SideStatistics]): Boolean = size > Kept
    })

  def of(plan: LogicalPlan, interval: Interval, keys: Seq[Expression]): SideStatistics = {
    val asked = (Seq(interval.start, interval.end) ++ keys).map(QueryPlan.normalizeExpressions(_, plan.output))
    val question = (plan.semanticHash(), asked.map(_.semanticHash()).hashCode, plan.stats.sizeInBytes)
    Option(known.get(question)).getOrElse {
      val found = collected(plan, interval, keys)
      known.put(question, found)
      found
    }
  }

  /** One job over the input. */
  private def collected(plan: LogicalPlan, interval: Interval, keys: Seq[Expression]): SideStatistics = {
    val start = Alias(interval.start, "start")()
    val length = Alias(Subtract(interval.end, interval.start), "length")()
    val key = Alias(if (keys.isEmpty) Literal(0L) else new XxHash64(keys), "key")()
    val points = Project(Seq(start, length, key), plan)
    val cuts = Literal.create(Cuts.toArray, org.apache.spark.sql.types.ArrayType(DoubleType, containsNull = false))
    val values: Seq[AggregateFunction] = Seq(
      Count(Literal(1)),
      HyperLogLogPlusPlus(key.toAttribute),
      new ApproximatePercentile(start.toAttribute, cuts, Literal(1000)),
      new ApproximatePercentile(length.toAttribute, cuts, Literal(1000)))
    val columns = values.map(value => Alias(value.toAggregateExpression(), value.prettyName)())
    val row = classic.Dataset.ofRows(classic.SparkSession.active, Aggregate(Nil, columns, points)).head()
    SideStatistics(row.getLong(0).toDouble, row.getLong(1).toDouble.max(1), finite(row, 2), finite(row, 3))
  }

  private def finite(row: Row, place: Int): Seq[Double] =
    if (row.isNullAt(place)) Nil else row.getSeq[Double](place).filter(x => !x.isNaN && !x.isInfinite)
}

/** Widths of bins, narrowest first, over positions from `low` to `high`, and their predicted cost.
  *
  * `anchor` is the side whose rows have one bin each, where rows without a match are part of the result.
  */
case class Layout(
    low: Double, high: Double, widths: Seq[Double], anchor: Option[Anchor], rows: Double, candidates: Double) {

  def seconds: Double = rows * Layout.RowCost + candidates * Layout.PairCost

  override def toString: String =
    f"bins of width ${widths.map(w => f"$w%.4g").mkString(", ")}, $rows%.3g rows placed, $candidates%.3g pairs compared"
}

sealed trait Anchor
case object AnchorLeft extends Anchor
case object AnchorRight extends Anchor

object Layout {
  val RowCost = 0.7e-6 // seconds to copy, shuffle and sort a row
  val PairCost = 10e-9 // seconds to compare the rows of a pair
  private val Finest = 22 // halvings of the whole range
  private val MostLevels = 8
  private val MostCopies = 1000.0 // of a row on average, in bins that are asked for
  private val Step = 8.0 // between the widths of two levels

  /** The cheapest widths that a search finds, or those that are asked for; the rows of a join are the same with any. */
  def cheapest(
      how: JoinType, range: Overlap, left: SideStatistics, right: SideStatistics, asked: Seq[Double]): Layout = {
    val anchor = how match {
      case _: InnerLike => None
      case RightOuter => Some(AnchorRight)
      case _ => Some(AnchorLeft)
    }
    val starts = (left.starts ++ right.starts) :+ 0.0
    val (low, high) = if (starts.size == 1) (0.0, 1.0) else (starts.init.min, starts.init.max)
    // Bins are wide enough for doubles to tell them apart.
    val span = (high - low).max(low.abs.max(high.abs) * 1e-9).max(1e-9)
    val point = anchor.exists(side => (if (side == AnchorLeft) range.left else range.right).point)
    val finest = (span / (1L << Finest)).max(low.abs.max(high.abs) * 1e-9)
    val longest = (left.lengths ++ right.lengths).maxOption.getOrElse(0.0).min(span)
    val wanted = asked.map(_.max(finest)).distinct.sorted.take(if (point) 1 else MostLevels)
    val searched = for {
      narrowest <- Seq.iterate(span, Finest + 1)(_ / 2) if narrowest >= finest
      above = math.ceil(math.log(longest / narrowest) / math.log(Step)).toInt
      levels <- if (point) Seq(1) else Seq(1, 1 + above.max(0)) if levels <= MostLevels
    } yield Seq.iterate(narrowest, levels)(_ * Step)
    def layout(widths: Seq[Double]) = priced(Layout(low, low + span, widths, anchor, 0, 0), point, left, right)
    // Widths are set for a session: for a join of much longer intervals they would make copies without end.
    val fits = Some(wanted).filter(_.nonEmpty).map(layout).filter(_.rows <= MostCopies * (left.rows + right.rows))
    fits.getOrElse(searched.map(layout).minBy(_.seconds))
  }

  private def priced(layout: Layout, point: Boolean, left: SideStatistics, right: SideStatistics): Layout = {
    val all = left.rows * right.rows / left.keys.max(right.keys)
    layout.anchor match {
      case None =>
        val (ls, rs) = (Occupancy(layout, left), Occupancy(layout, right))
        val compared = layout.widths.indices.map { level =>
          val (homes, others) = (ls.home(level), rs.home(level))
          shared(layout.widths(level), left, right) * (homes * (others + rs.below(level)) + ls.below(level) * others)
        }
        layout.copy(rows = ls.rows + rs.rows, candidates = all * compared.sum.min(1.0))
      case Some(side) =>
        val (anchored, other) = if (side == AnchorLeft) (left, right) else (right, left)
        val near = if (point) 0.0 else 1.0
        val copies = layout.widths.map(width => mean(other.lengths)(length => 1 + near + length / width))
        val homes = layout.widths.scanLeft(0.0)((_, width) => mean(anchored.lengths)(l => if (l <= width) 1.0 else 0.0))
        val compared = layout.widths.indices.map { level =>
          shared(layout.widths(level), left, right) * (homes(level + 1) - homes(level)) * copies(level)
        }
        val longer = if (point) 0.0 else 1 - homes.last
        val placed = anchored.rows + other.rows * (copies.sum + near)
        layout.copy(rows = placed, candidates = all * (compared.sum + longer).min(1.0))
    }
  }

  /** Bins of a row on average, by level: of rows whose length fits the level, and of rows from the levels below. */
  private case class Occupancy(layout: Layout, side: SideStatistics) {
    private def level(length: Double) = layout.widths.indexWhere(length <= _) match {
      case -1 => layout.widths.size - 1
      case found => found
    }
    private def bins(at: Int, length: Double) = 1 + length.min(layout.high - layout.low) / layout.widths(at)
    def home(at: Int): Double = mean(side.lengths)(length => if (level(length) == at) bins(at, length) else 0.0)
    def below(at: Int): Double = mean(side.lengths)(length => if (level(length) < at) bins(at, length) else 0.0)
    def rows: Double = side.rows * layout.widths.indices.map(at => home(at) + below(at)).sum
  }

  private def mean(values: Seq[Double])(value: Double => Double): Double =
    if (values.isEmpty) 0.0 else values.map(value).sum / values.size

  /** The chance that a left and a right start fall into one bin of this width. */
  private def shared(width: Double, left: SideStatistics, right: SideStatistics): Double = {
    def pieces(starts: Seq[Double]) = starts.zip(starts.drop(1))
    val chances = for ((a, b) <- pieces(left.starts); (c, d) <- pieces(right.starts)) yield {
      val common = (b.min(d) - a.max(c) + width).max(0.0)
      (width * common / ((b - a).max(width) * (d - c).max(width))).min(1.0)
    }
    if (chances.isEmpty) 0.0 else chances.sum / chances.size
  }
}
