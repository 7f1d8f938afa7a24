"""Prints the settings with which a server loads the rule, which is compiled if necessary."""

from dovetail.spark.catalyst import EXTENSIONS, compiled

print(f"--jars {compiled()} --conf spark.sql.extensions={EXTENSIONS}")
