"""Opens master stores, and builds page files that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.errors import ConfigError
from dovetail.joins.semistream.cells import check_ranged
from dovetail.joins.semistream.master.page_file.generation import is_page_file
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.build import page_place
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.steps.sources import parsed_schema
from dovetail.spark.frames import arrow_type
from dovetail.spark.inputs import refuse_collated


def open_master(step: Step, build_from: DataFrame | None) -> MasterStore:
    """The store of a master; a page file that is missing is built from its source."""
    if build_from is not None and is_missing(step):
        build = {key: value for key, value in step.values["build"].items() if key != "from"}
        return MasterStore.build(build_from, step.values["path"], step.values.get("key", ()), **build)
    return _opened(step)


def promised_master(step: Step, build_from: DataFrame | None) -> MasterStore:
    """The store of a master for a check; a page file that a run would build has columns and key only."""
    if build_from is None or not is_missing(step):
        return _opened(step)
    schema = pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in build_from.schema])
    key, bounds = step.values.get("key", ()), step.values["build"].get("bounds")
    names = (key,) if isinstance(key, str) else tuple(key)
    absent = [name for name in names if name not in schema.names]
    if absent:
        raise ConfigError(
            f"key: the source that it is built from has no column {absent[0]!r}; it has {schema.names}", argument="key"
        )
    for name in names:
        refuse_collated(build_from.schema[name], "key")
    order = step.values["build"].get("order", "key")
    ranged = None if bounds is None else check_ranged(schema, names, bounds).bounds
    return MasterStore(PageFileSource(step.values["path"]), schema, names, order, bounds=ranged)


def is_missing(step: Step) -> bool:
    """Whether a master is a page file that does not exist yet."""
    return step.type == "pages" and not is_page_file(page_place(step.values["path"]))


def _opened(step: Step) -> MasterStore:
    values = step.values
    if step.type == "pages":
        return MasterStore.open(values["path"])
    if step.type in ("parquet", "delta"):
        return (MasterStore.delta if step.type == "delta" else MasterStore.parquet)(values["path"], values["key"])
    if step.type == "iceberg":
        return MasterStore.iceberg(_catalog(values), values["table"], values["key"])
    if step.type == "table":
        return MasterStore.table(values["table"], values["key"])
    page = {"page": values["page"]} if "page" in values else {}
    if step.type == "sqlite":
        return MasterStore.sqlite(values["path"], values["table"], values["key"], **page)
    if step.type == "redis":
        parts = {"separator": values["separator"]} if "separator" in values else {}
        return MasterStore.redis(
            values["uri"], values["prefix"], values["key"],
            schema=_schema(values["schema"]), marker=values.get("marker"), **page, **parts,
        )  # fmt: skip
    server = MasterStore.mysql if step.type == "mysql" else MasterStore.postgres
    return server(values["uri"], values["table"], values["key"], marker=values.get("marker"), **page)


def _catalog(values: Mapping[str, Any]) -> object:
    """A catalog by its name and properties; None for a table that is known by its place."""
    if "properties" not in values:
        return values.get("catalog")
    name = {"name": values["catalog"]} if "catalog" in values else {}
    return {**{key: str(value) for key, value in values["properties"].items()}, **name}


def _schema(text: str) -> pa.Schema:
    """The columns of hashes, declared as Spark declares columns."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in parsed_schema(text).fields])
