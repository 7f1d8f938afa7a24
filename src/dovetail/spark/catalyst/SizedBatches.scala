package org.apache.spark.sql.execution.python // Spark's runners of Python are private to it

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, MapInArrow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy, UnaryExecNode}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StructField, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}

/** Plans `mapInArrow` with batches that are bounded by the sizes of their rows.
  *
  * Spark asks the Arrow vectors for their size after every row, which takes half of the time in which rows become
  * Arrow batches. A row knows its own size, so that the same bound costs an addition.
  */
object SizedBatches extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case MapInArrow(function: PythonUDF, output, child, false, None) =>
      SizedMapInArrowExec(function, output, planLater(child)) :: Nil
    case _ => Nil
  }

  def install(session: SparkSession): Unit = {
    val methods = session.asInstanceOf[classic.SparkSession].experimental
    if (!methods.extraStrategies.contains(this)) methods.extraStrategies :+= this
  }

  def uninstall(session: SparkSession): Unit = {
    val methods = session.asInstanceOf[classic.SparkSession].experimental
    methods.extraStrategies = methods.extraStrategies.filterNot(_ == this)
  }
}

/** Spark's own operator of `mapInArrow` but for the bound of a batch. */
case class SizedMapInArrowExec(function: PythonUDF, output: Seq[Attribute], child: SparkPlan)
    extends UnaryExecNode
    with PythonSQLMetrics {
  private val artifacts = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)
  private val logs = if (conf.pythonWorkerLoggingEnabled) Some(session.sessionUUID) else None

  override def nodeName: String = "MapInArrow"
  override def producedAttributes: AttributeSet = AttributeSet(output)
  override def outputPartitioning: Partitioning = child.outputPartitioning

  override protected def doExecute(): RDD[InternalRow] = {
    val task = SizedTask(
      output,
      Seq((ChainedPythonFunctions(Seq(function.func)), function.resultId.id)),
      child.schema,
      function.dataType,
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes,
      conf.arrowMaxRecordsPerBatch,
      conf.arrowMaxBytesPerBatch,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      pythonMetrics,
      artifacts,
      logs)
    child.execute().mapPartitionsWithIndexInternal((partition, rows) => task.answers(partition, rows))
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}

/** What a task does: sends rows in batches, and gives the rows that come back. */
private case class SizedTask(
    output: Seq[Attribute],
    functions: Seq[(ChainedPythonFunctions, Long)],
    input: StructType,
    answered: DataType,
    timeZone: String,
    largeTypes: Boolean,
    mostRows: Int,
    mostBytes: Long,
    settings: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    logs: Option[String]) {

  def answers(partition: Int, rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val project = UnsafeProjection.create(output, output)
    runner.compute(batches(rows), partition, TaskContext.get()).flatMap(opened).map(project)
  }

  private def runner = new ArrowPythonRunner(
    functions,
    PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    Array(Array(0)),
    StructType(Array(StructField("struct", input))), // a row is one value to the function
    timeZone,
    largeTypes,
    settings,
    metrics,
    artifacts,
    logs) with BatchedPythonArrowInput {
    override protected val maxBytesPerBatch: Long = Int.MaxValue // Spark then asks for no sizes
  }

  /** The rows, batch by batch: each ends with the row that reaches the bound. */
  private def batches(rows: Iterator[InternalRow]): Iterator[Iterator[InternalRow]] = {
    lazy val unsafe = UnsafeProjection.create(input)
    new Iterator[Iterator[InternalRow]] {
      override def hasNext: Boolean = rows.hasNext
      override def next(): Iterator[InternalRow] = new Iterator[InternalRow] {
        private var count, bytes = 0L
        override def hasNext: Boolean =
          bytes < mostBytes && (mostRows <= 0 || count < mostRows) && rows.hasNext
        override def next(): InternalRow = {
          val row = rows.next() match {
            case known: UnsafeRow => known
            case other => unsafe(other)
          }
          count += 1
          bytes += row.getSizeInBytes
          InternalRow(row)
        }
      }
    }
  }

  private def opened(batch: ColumnarBatch): Iterator[InternalRow] = {
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
    if (SQLConf.get.pysparkArrowValidateSchema &&
      !DataType.equalsIgnoreCompatibleNullability(struct.dataType(), answered)) {
      val kind = PythonEvalType.toString(PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
      throw QueryExecutionErrors.arrowDataTypeMismatchError(kind, Seq(answered), Seq(struct.dataType()))
    }
    val columns = new ColumnarBatch(output.indices.map(struct.getChild).toArray)
    columns.setNumRows(batch.numRows())
    columns.rowIterator().asScala
  }
}
