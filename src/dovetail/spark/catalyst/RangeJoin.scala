package org.apache.spark.sql.dovetail

import scala.collection.mutable.ListBuffer
import scala.util.control.NonFatal

import org.apache.spark.SparkException
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.JOIN
import org.apache.spark.sql.classic
import org.apache.spark.sql.internal.SQLConf

/** Plans joins by two ranges that overlap as equality joins over bins, for every client of the session.
  *
  * The condition of the join stays what it was. A bin number is added to either side, and with it an equality that
  * every pair of the result satisfies; so the rows are those of Spark's own plan, whatever the bins are. Statistics
  * of the inputs decide how wide bins are. A join that is not understood remains as it is.
  */
class RangeJoin extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (plan.isStreaming || !RangeJoin.isOn(conf)) plan
    else plan.transformUpWithPruning(_.containsPattern(JOIN)) { case join: Join => RangeJoin.planned(join, conf) }
}

/** For `spark.sql.extensions`: the rule in every session of a server. */
class RangeJoinExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    // The batch of users' rules runs last, after subqueries have become joins; a session has it, an extension has not.
    extensions.injectOptimizerRule { session =>
      RangeJoin.install(session)
      NoRule
    }
}

private object NoRule extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}

object RangeJoin extends PredicateHelper {
  val Switch = "spark.dovetail.rangeJoin"
  val LeastPairs = "spark.dovetail.rangeJoin.leastPairs"
  val Widths = "spark.dovetail.rangeJoin.widths"
  val Reserved = "__dt_" // the prefix of columns that Dovetail adds: joins by them are planned already

  private val decisions = new ThreadLocal[ListBuffer[String]]

  def isOn(conf: SQLConf): Boolean = conf.getConfString(Switch, "true").trim.equalsIgnoreCase("true")

  def install(session: SparkSession): Unit = {
    val methods = session.asInstanceOf[classic.SparkSession].experimental
    if (!methods.extraOptimizations.exists(_.isInstanceOf[RangeJoin])) methods.extraOptimizations :+= new RangeJoin
  }

  def uninstall(session: SparkSession): Unit = {
    val methods = session.asInstanceOf[classic.SparkSession].experimental
    methods.extraOptimizations = methods.extraOptimizations.filterNot(_.isInstanceOf[RangeJoin])
  }

  /** What the rule makes of the joins of a query: a line for each, and the reason where it is left to Spark. */
  def explain(frame: classic.Dataset[_]): String = {
    val lines = ListBuffer.empty[String]
    decisions.set(lines)
    try frame.sparkSession.sessionState.executePlan(frame.queryExecution.analyzed).optimizedPlan
    finally decisions.remove()
    lines.distinct.mkString("\n")
  }

  /** The join by bins, or the join itself. */
  def planned(join: Join, conf: SQLConf): LogicalPlan = {
    if (join.condition.exists(_.references.exists(_.name.startsWith(Reserved)))) return join
    val outcome =
      try byBins(join, conf)
      catch {
        case error: SparkException if error.getCondition == "SPARK_JOB_CANCELLED" => throw error
        case NonFatal(error) => Left(s"statistics failed: ${error.toString.linesIterator.nextOption().getOrElse("")}")
      }
    val shown = s"${named(join.joinType)} join on ${join.condition.map(_.sql).getOrElse("nothing")}"
    outcome match {
      case Right((plan, how)) => note(s"by bins: $shown: $how"); plan
      case Left(why) => note(s"left to Spark: $shown: $why"); join
    }
  }

  private def note(line: => String): Unit = Option(decisions.get).foreach(_ += line)

  private def byBins(join: Join, conf: SQLConf): Either[String, (LogicalPlan, String)] =
    for {
      _ <- unclear(join).toLeft(())
      ranges = candidates(join)
      _ <- Either.cond(ranges.nonEmpty, (), "no two comparisons of bounds that say overlap")
      least = conf.getConfString(LeastPairs, "1e8").toDouble
      _ <- few(estimated(join.left) * estimated(join.right), least).toLeft(())
      _ <- unreadable(join.left).orElse(unreadable(join.right)).toLeft(())
      widths = conf.getConfString(Widths, "").split(",").filter(_.nonEmpty).map(_.toDouble).toSeq
      found <- best(join, ranges, least, widths)
    } yield (Bins.join(join, found._1, found._2), found._2.toString)

  private def few(pairs: Double, least: Double): Option[String] =
    if (pairs >= least) None else Some(f"there are few pairs to compare, $pairs%.3g")

  private def unclear(join: Join): Option[String] = join.joinType match {
    case _: InnerLike | LeftOuter | RightOuter | LeftSemi | LeftAnti =>
      join.condition match {
        case None => Some("no condition")
        case Some(condition) if !condition.deterministic || condition.exists(isForeign) =>
          Some("its condition has random values, a subquery or a function of the user")
        case _ if join.hint != JoinHint.NONE => Some("a hint says how Spark joins it")
        case _ => None
      }
    case other => Some(s"a ${named(other)} join")
  }

  /** The name of a kind of join; that of EXISTS beside OR has no SQL. */
  private def named(kind: JoinType): String = kind match {
    case _: ExistenceJoin => "EXISTENCE"
    case other => other.sql
  }

  private def isForeign(expression: Expression): Boolean = expression match {
    case _: UserDefinedExpression | _: PlanExpression[_] | _: NonSQLExpression => true
    case _ => false
  }

  /** Rows of an input by Spark's estimate. */
  private def estimated(plan: LogicalPlan): Double = {
    val rows = plan.stats.rowCount.getOrElse(plan.stats.sizeInBytes / EstimationUtils.getSizePerRow(plan.output))
    rows.toDouble.max(1)
  }

  /** Why an input is not read for statistics: it might do more than give rows, or cost much. */
  private def unreadable(plan: LogicalPlan): Option[String] =
    plan.collectFirst {
      case node @ (_: CollectMetrics | _: ObjectProducer | _: ObjectConsumer | _: CTERelationRef | _: WithCTE) => node
      case node if node.nodeName.matches(".*(Python|Arrow|Pandas|Script).*") => node
      case node if node.expressions.exists(_.exists(isUnrepeatable)) => node
    }.map(node => s"an input has ${node.nodeName}, which is not run twice")

  /** Functions of the user, and values that say in which partition a row was read. */
  private def isUnrepeatable(expression: Expression): Boolean = expression match {
    case _: UserDefinedExpression | _: MonotonicallyIncreasingID | _: SparkPartitionID => true
    case _ => false
  }

  /** Pairs of comparisons in opposite directions: left start before right end, left end after right start. */
  private def candidates(join: Join): Seq[Overlap] = {
    val across = splitConjunctivePredicates(join.condition.get).flatMap {
      case LessThan(a, b) => turned(join, a, b, less = true)
      case LessThanOrEqual(a, b) => turned(join, a, b, less = true)
      case GreaterThan(a, b) => turned(join, a, b, less = false)
      case GreaterThanOrEqual(a, b) => turned(join, a, b, less = false)
      case _ => None
    }
    for {
      (ls, re, less) <- across if less
      (le, rs, more) <- across if !more
      left <- Interval.of(ls, le)
      right <- Interval.of(rs, re)
      if left.family == right.family
    } yield Overlap(left, right)
  }.take(4)

  private def turned(join: Join, a: Expression, b: Expression, less: Boolean) =
    if (over(a, join.left) && over(b, join.right)) Some((a, b, less))
    else if (over(a, join.right) && over(b, join.left)) Some((b, a, !less))
    else None

  private def over(expression: Expression, plan: LogicalPlan): Boolean =
    expression.references.nonEmpty && expression.references.subsetOf(plan.outputSet)

  /** The cheapest bins over all candidates, or those asked for; unless comparing all pairs is cheaper. */
  private def best(
      join: Join, ranges: Seq[Overlap], least: Double, widths: Seq[Double]): Either[String, (Overlap, Layout)] = {
    val keys = splitConjunctivePredicates(join.condition.get).collect {
      case EqualTo(a, b) => turned(join, a, b, less = true)
      case EqualNullSafe(a, b) => turned(join, a, b, less = true)
    }.flatten
    val priced = ranges.map { range =>
      val left = SideStatistics.of(join.left, range.left, keys.map(_._1))
      val right = SideStatistics.of(join.right, range.right, keys.map(_._2))
      (range, left, right, Layout.cheapest(join.joinType, range, left, right, widths))
    }
    val (range, left, right, layout) = priced.minBy(_._4.seconds)
    val pairs = left.rows * right.rows / left.keys.max(right.keys)
    few(pairs, least).toLeft(()).flatMap { _ =>
      if (least > 0 && widths.isEmpty && layout.seconds > pairs * Layout.PairCost) Left(s"comparing all pairs is cheaper than $layout")
      else Right((range, layout))
    }
  }
}
