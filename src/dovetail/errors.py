"""Error classes by cause: the request, the rows, the environment, or a limit of Dovetail."""

from __future__ import annotations


class DovetailError(Exception):
    """Any error that Dovetail raises on purpose; the message says what to do.

    `argument` names the argument that the error is about; None if it is about none or several.

    >>> try:
    ...     dovetail.xquery(spark, "1 + 1", output="rows")
    ... except dovetail.DovetailError as error:
    ...     print(error.argument, "|", error)
    output | output='rows' is not known. Known: items, columns.
    """

    def __init__(self, message: str = "", *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class PlanError(DovetailError, ValueError):
    """The request cannot be planned as written. Raised on the driver, before any job starts.

    >>> rows = spark.createDataFrame([(0, 5)], "start int, end int")
    >>> try:
    ...     dovetail.interval_join(rows, rows, how="outter")
    ... except dovetail.PlanError as error:
    ...     print(error.argument)
    how
    """


class DataError(DovetailError):
    """The rows break a rule of the request; the message carries a sample of them.

    >>> rows = spark.createDataFrame([(5, 0)], "start int, end int")
    >>> try:
    ...     dovetail.interval_join(rows, rows)
    ... except dovetail.DataError as error:
    ...     print(str(error)[:28])
    left input has 1 interval(s)
    """


class ConfigError(DovetailError):
    """The environment (Java, disk, session settings, a server) is not as it must be.

    >>> try:
    ...     dovetail.MasterStore.open(f"{place}/nothing.pages")
    ... except dovetail.ConfigError as error:
    ...     print("build it with MasterStore.build" in str(error))
    True
    """


class UnsupportedError(DovetailError, NotImplementedError):
    """A limit of Dovetail; the message names what to use instead.

    >>> rows = spark.createDataFrame([(1,)], "k int")
    >>> try:
    ...     dovetail.online_join(rows, rows, within=("k", 1), algorithm="xjoin")
    ... except dovetail.UnsupportedError as error:
    ...     print(error.argument)
    algorithm
    """


class BudgetExceeded(DovetailError, MemoryError):  # noqa: N818  (reads as the event it is)
    """A component asked for memory that its budget does not have, and it cannot spill.

    >>> from dovetail.engine.memory import MemoryBudget
    >>> try:
    ...     MemoryBudget("1KB").reserve("table").grow(2000)
    ... except dovetail.BudgetExceeded as error:
    ...     print(str(error)[:41])
    component 'table' asked for 2 KiB (2000 b
    """


class XQueryError(DovetailError):
    """A query is wrong or unsupported, with its W3C error code and the place in the text.

    >>> try:
    ...     dovetail.xquery(spark, "1 +")
    ... except dovetail.XQueryError as error:
    ...     print(error.code, error.line, error.column)
    XPST0003 1 4
    """

    def __init__(self, code: str, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"[{code}] {message}" + (f" (line {line}, column {column})" if line else ""))
        self.code, self.line, self.column = code, line, column

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle text, code and place, as errors pass between processes."""
        return _copied, (str(self), self.code, self.line, self.column)


def _copied(text: str, code: str, line: int, column: int) -> XQueryError:
    error = XQueryError(code, "", line, column)
    error.args = (text,)
    return error
