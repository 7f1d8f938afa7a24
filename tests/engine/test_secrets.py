"""Passwords, keys and tokens of addresses are in no text that a program may print, however they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dovetail.engine.storage.files import located
from dovetail.engine.storage.secrets import censored, check_escaped, hidden, shown
from dovetail.errors import ConfigError, DovetailError, PlanError
from dovetail.joins.semistream.master.lake.delta import delta_source
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.pipeline.file.declared import Secrets, Step

PASSWORDS = ("plain", "12/3", "a/b?c#d", "p@ss/w", "x%2Fy", "aZ/9+f=")
SCHEMA = pa.schema([("k", pa.int64()), ("word", pa.string())])


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("scheme", ["mysql", "postgresql", "redis", "s3", "https"])
def test_no_part_of_a_password_is_shown(scheme: str, password: str) -> None:
    url = f"{scheme}://user:{password}@host:1/place"
    for text in (
        hidden(url),
        hidden(f"cannot open '{url}'."),
        hidden(url, users=True),
        shown(url),
        censored(url, [url]),
    ):
        assert not any(
            part in text for part in ("plain", "12", "/3", "a/b", "c#d", "p@ss", "ss/w", "x%2F", "aZ", "9+f")
        )
        assert "host:1/place" in text
    assert shown(url) == f"{scheme}://user@host:1/place"


def test_tokens_and_options_are_not_shown() -> None:
    url = "https://t0ken@catalog/v1?warehouse=w&oauth-token=abc&x=1"
    assert hidden(url) == "https://catalog/v1?warehouse=w&oauth-token=***&x=1"
    assert censored("t0ken abc w", [url]) == "*** *** w"
    assert hidden("jdbc:postgresql://h/d?password=x&ssl=1") == "jdbc:postgresql://h/d?password=***&ssl=1"
    assert shown("unix:///tmp/redis.sock?password=x") == "unix:///tmp/redis.sock"


@pytest.mark.parametrize(
    "text",
    ["s3a://bucket/user=a@b/x", "hdfs://name:8020/a@b/c", "file:///x:y@z", "mailto:a@b", "mysql://h:3306/d", "a @ b"],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text


@pytest.mark.parametrize("password", ["12/3", "1?2", "1#2", "1@2/3", "1@2?3"])
@pytest.mark.parametrize("store", ["mysql", "redis", "postgres"])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(store: str, password: str) -> None:
    url = f"{'postgresql' if store == 'postgres' else store}://u:{password}@127.0.0.1:1/d"
    make: dict[str, Any] = {
        "mysql": lambda: MasterStore.mysql(url, "t", "k"),
        "redis": lambda: MasterStore.redis(url, "p:", "k", schema=SCHEMA),
        "postgres": lambda: MasterStore.postgres(url, "t", "k"),
    }
    with pytest.raises(PlanError, match="not escaped") as caught:
        make[store]()
    assert password not in str(caught.value)
    with pytest.raises(PlanError, match="%5B"):
        check_escaped("mysql://u:a[b@h/d")
    check_escaped("mysql://u:12%2F3@h/d?ssl_ca=/a@b")
    check_escaped("postgresql:///d?host=/tmp")


def test_a_key_with_a_slash_in_an_address_of_files_is_not_shown(tmp_path: Path) -> None:
    address = "s3a://AKIA:wJalr/K7MD+x@bucket/table"
    with pytest.raises(ConfigError, match="no keys in it") as refused:
        located(address)
    source = ParquetSource("s3://AKIA:wJalr/K7MD+x@bucket/x", ("k",))
    texts = [str(refused.value), str(source), repr(source)]
    with pytest.raises(DovetailError) as caught:
        delta_source(f"{tmp_path.as_uri().replace('//', '//AKIA:wJalr/K7MD+x@')}/none", "k", None)
    for text in [*texts, str(caught.value)]:
        assert "K7MD" not in text
        assert "wJalr" not in text


def test_a_record_of_a_run_shows_no_unescaped_password_and_no_secret_option() -> None:
    written = {"uri": "mysql://u:12/3@h/d", "options": {"password": "hid", "sasl.token": "hid2", "topic": "t"}}
    detail = Step("sink", "out", "jdbc", written, written, ()).node().detail
    assert "12/3" not in detail
    assert "hid" not in detail
    assert "'topic': 't'" in detail
    secrets = Secrets({"P": "12/3"})
    secrets.filled("${P}")
    assert secrets.masked("at mysql://u:12/3@h and 12%2F3") == "at mysql://u:***@h and ***"
