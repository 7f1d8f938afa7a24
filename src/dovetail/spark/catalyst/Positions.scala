package org.apache.spark.sql.dovetail

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._

/** A bound as a double that grows with it: equal or larger for a larger bound. `low` and `high` enclose it. */
case class Position(low: Expression, high: Expression)

/** The interval of a row, from the smaller of its bounds to its end; `point` if both are one expression. */
case class Interval(start: Expression, end: Expression, point: Boolean, family: String)

/** The intervals of both sides of a join. Pairs of the result overlap or touch. */
case class Overlap(left: Interval, right: Interval)

object Interval {

  /** The interval of two bounds, if evaluating them for every row can neither fail nor change a row.
    *
    * If left start <= right end and right start <= left end, then also with the smaller bound of either side as its
    * start, so that the intervals share a point, though a row may have its bounds in the wrong order.
    */
  def of(start: Expression, end: Expression): Option[Interval] =
    for {
      kind <- family(start.dataType) if family(end.dataType).contains(kind)
      first <- position(start)
      last <- position(end)
    } yield
      if (start.semanticEquals(end)) Interval(first.low, first.high, first.low == first.high, kind)
      else Interval(If(GreaterThan(first.low, last.low), last.low, first.low), last.high, point = false, kind)

  private def family(kind: DataType): Option[String] = kind match {
    case _: NumericType => Some("number")
    case DateType | TimestampType | TimestampNTZType => Some(kind.sql)
    case _ => None
  }

  private def position(bound: Expression): Option[Position] = bound.dataType match {
    case FloatType | DoubleType => exact(bound, identity)
    case _: NumericType =>
      bound match {
        case Add(a, b, mode) if mode.evalMode == EvalMode.ANSI =>
          sum(position(a), position(b), 1).map(rounded(_, bound))
        case Subtract(a, b, mode) if mode.evalMode == EvalMode.ANSI =>
          sum(position(a), position(b), -1).map(rounded(_, bound))
        case Cast(child, _, _, _) if child.dataType.isInstanceOf[NumericType] && widens(bound) => position(child)
        case _ => exact(bound, identity)
      }
    case DateType => exact(bound, UnixDate(_))
    case TimestampType | TimestampNTZType =>
      bound match {
        case TimestampAddInterval(time, Literal(micros: Long, _: DayTimeIntervalType), _) =>
          // Days are days of the calendar, which may have some hours more or less than 24.
          val hours = if (micros.abs < 86400000000L) 0.0 else 26 * 3600e6
          sum(position(time), Some(same(Literal(micros.toDouble))), 1).map(widened(_, Literal(hours)))
        case _ => exact(bound, PreciseTimestampConversion(_, bound.dataType, LongType))
      }
    case _ => None
  }

  private def same(value: Expression) = Position(value, value)

  private def exact(bound: Expression, number: Expression => Expression): Option[Position] =
    if (isSafe(bound)) Some(same(Cast(number(bound), DoubleType, Some("UTC"), EvalMode.LEGACY))) else None

  /** A sum in doubles, which cannot fail, and what rounding may have lost. */
  private def sum(one: Option[Position], other: Option[Position], sign: Int): Option[Position] =
    for (a <- one; b <- other) yield {
      val (low, high) = if (sign > 0) (Add(a.low, b.low), Add(a.high, b.high))
        else (Subtract(a.low, b.high), Subtract(a.high, b.low))
      val sizes = Seq(a.low, a.high, b.low, b.high).map(Abs(_): Expression).reduce(Add(_, _))
      widened(Position(low, high), Multiply(sizes, Literal(math.pow(2, -50))))
    }

  /** With what a sum of decimals of many digits loses: it may have fewer places than they. */
  private def rounded(position: Position, sum: Expression): Position = sum.dataType match {
    case kind: DecimalType => widened(position, Literal(math.pow(10, -kind.scale)))
    case _ => position
  }

  private def widened(position: Position, by: Expression): Position =
    if (by == Literal(0.0)) position else Position(Subtract(position.low, by), Add(position.high, by))

  private def widens(bound: Expression): Boolean = bound match {
    case Cast(child, to, _, _) => Cast.canUpCast(child.dataType, to)
    case _ => false
  }

  /** Whether evaluating an expression for a row that the join might not look at never fails. */
  private def isSafe(expression: Expression): Boolean = expression match {
    case _: AttributeReference | _: Literal => true
    case _: GetStructField | _: DateAdd | _: DateSub | _: Coalesce | _: Least | _: Greatest =>
      expression.children.forall(isSafe)
    case _: Add | _: Subtract | _: Multiply | _: UnaryMinus =>
      (expression.dataType == DoubleType || expression.dataType == FloatType || neverFails(expression)) &&
        expression.children.forall(isSafe)
    case _: Cast => widens(expression) && expression.children.forall(isSafe)
    case _ => false
  }

  /** Whether a sum that is too large wraps around or is null, instead of failing. */
  private def neverFails(expression: Expression): Boolean = expression match {
    case Add(_, _, mode) => mode.evalMode != EvalMode.ANSI
    case Subtract(_, _, mode) => mode.evalMode != EvalMode.ANSI
    case _ => false
  }
}
