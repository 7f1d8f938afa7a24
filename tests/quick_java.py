"""Options for a Java that lives for minutes and runs each query once or twice."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile fast rather than well: tests take little more than half the processor time."""
