"""Prints the settings with which a server loads the rule, compiled if necessary; `ship` puts it in the wheel."""

import os
import sys

from dovetail.spark.catalyst import EXTENSIONS, compiled, ship

if sys.argv[1:] == ["background"]:
    os.nice(19)  # a running query has priority
jar = ship() if sys.argv[1:] == ["ship"] else compiled()
print(f"--jars {jar} --conf spark.sql.extensions={EXTENSIONS}")
