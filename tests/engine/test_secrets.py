"""Passwords, keys and tokens of addresses are in no text that a program may print, however they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dovetail.engine.storage.files import located
from dovetail.engine.storage.secrets import censored, check_escaped, hidden, is_secret, shown
from dovetail.errors import ConfigError, DovetailError, PlanError
from dovetail.joins.semistream.master.lake.delta import delta_source
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.pipeline.file.declared import Secrets, Step

PASSWORDS = ("plain", "12/3", "a/b?c#d", "p@ss/w", "x%2Fy", "aZ/9+f=")
QUOTED = ("s3cr'et", 's3cr"et', "s3cr et", "s3cr' et", "'s3cret'", "s3c@r'et", "s3 cr@et")
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


@pytest.mark.parametrize("password", QUOTED)
def test_a_password_with_a_quote_or_a_blank_is_not_shown(password: str) -> None:
    url = f"mysql://user:{password}@host:1/place"
    within = (
        f"cannot open {url}.",
        f"at {url}, and at {url}",
        str({"uri": url, "mail": "a@b"}),
        f"from s3a://b/c to {url}",
    )
    for text in (*map(hidden, within), hidden(url), hidden(url, users=True), shown(url), censored(url, [url])):
        assert not any(part in text for part in ("s3c", "cr", "et@", "3 c"))
        assert "host:1/place" in text
    assert shown(url) == "mysql://user@host:1/place"
    assert hidden(f"'mysql://o'brien:{password}@h/d'", users=True) == "'mysql://o'brien:***@h/d'"
    assert (
        Step("sink", "out", "jdbc", {"uri": url}, {"uri": url}, ()).node().detail == "uri=mysql://user:***@host:1/place"
    )


def test_a_password_without_a_host_is_not_shown() -> None:
    assert hidden("at mysql://u:s3cret/db") == "at mysql://u:***/db"
    assert hidden("'redis://u:s3cr'et'") == "'redis://u:***'"
    for text in (
        "k8s://https://h:443",
        "postgresql://h:1,g:2/d",
        "redis://[2001:db8::1]:6379/0",
        "m://${HOST}:${PORT}/d",
    ):
        assert hidden(text) == text


def test_tokens_and_options_are_not_shown() -> None:
    url = "https://t0ken@catalog/v1?warehouse=w&oauth-token=abc&x=1"
    assert hidden(url) == "https://catalog/v1?warehouse=w&oauth-token=***&x=1"
    assert hidden("https://t0ken@h/a and abfss://box@h/a", users=True) == "https://***@h/a and abfss://box@h/a"
    assert censored("t0ken abc w", [url]) == "*** *** w"
    assert hidden("jdbc:postgresql://h/d?password=x&ssl=1") == "jdbc:postgresql://h/d?password=***&ssl=1"
    assert hidden("-Djavax.net.ssl.keyStorePassword=s3cr'et -Dx=1") == "-Djavax.net.ssl.keyStorePassword=*** -Dx=1"
    assert hidden('required username="u" password="a b";') == 'required username="u" password=***;'
    assert shown("unix:///tmp/redis.sock?password=x") == "unix:///tmp/redis.sock"


@pytest.mark.parametrize(
    "text",
    [
        "s3a://bucket/user=a@b/x",
        "hdfs://name:8020/a@b/c",
        "file:///x:y@z",
        "mailto:a@b",
        "mysql://h:3306/d",
        "a @ b",
        "'mysql://h:3306/d' of a@b",
        "redis://h:6379 of a@b",
        "redis://h:6379: a@b",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hidden(text) == text


SECRET_NAMES = (
    "kafka.ssl.keystore.key", "header.Authorization", "fs.azure.account.key.acc.blob.core.windows.net", "account_key",
    "api_key", "apiKey", "access_key", "fs.s3a.access.key", "s3.access-key-id", "private_key", "passphrase",
    "adls.connection-string", "fs.s3a.encryption.key", "fs.gs.auth.service.account.private.key",
    "AWS_SECRET_ACCESS_KEY",
)  # fmt: skip
OTHER_NAMES = (
    "key", "keys", "key_columns", "primary_key", "master_key", "order_key", "keyspace", "kafka.bootstrap.servers",
    "key.serializer", "monkey", "kafka.ssl.keystore.location", "fs.s3a.encryption.algorithm", "connection",
    "fs.azure.account.keyprovider.acc", "hadoop.security.authorization", "ssl_key", "topic", "author", "account",
)  # fmt: skip


def test_names_of_secrets() -> None:
    assert [name for name in SECRET_NAMES if not is_secret(name)] == []
    assert [name for name in OTHER_NAMES if is_secret(name)] == []
    detail = Step("sink", "out", "kafka", {}, {"options": {"api_key": "hid", "key": "id"}}, ()).node().detail
    assert "hid" not in detail
    assert "'key': 'id'" in detail


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


STORES: dict[str, Any] = {
    "mysql": lambda url: MasterStore.mysql(url, "t", "k"),
    "redis": lambda url: MasterStore.redis(url, "p:", "k", schema=SCHEMA),
    "postgresql": lambda url: MasterStore.postgres(url, "t", "k"),
}


@pytest.mark.parametrize("scheme", STORES)
def test_a_password_that_a_driver_would_repeat_is_refused(scheme: str) -> None:
    for password in ("s3cr et", 's3cr"et', "s3cr\net"):
        with pytest.raises(PlanError, match="percent-encode it") as caught:
            STORES[scheme](f"{scheme}://u:{password}@127.0.0.1:1/d")
        assert "s3cr" not in str(caught.value)
    for rest in ("u:s3cret/d", "u:s3cret@h:99999/d", "u:s3cret,x/d", "u:p@h:s3cret"):
        with pytest.raises(PlanError, match="no port between 0 and 65535") as caught:
            STORES[scheme](f"{scheme}://{rest}")
        assert "s3cret" not in str(caught.value)
    for good in ("postgresql://u:p@h:1,[::1]:2,g/d", "redis://[::1]:6379/0", "mysql://u:s3cr'et@h/d", "mysql://h:/d"):
        check_escaped(good)


@pytest.mark.parametrize("scheme", STORES)
def test_a_quote_in_a_password_is_not_shown_by_a_driver(scheme: str) -> None:
    with pytest.raises(ConfigError) as caught:
        STORES[scheme](f"{scheme}://u:s3cr'et@127.0.0.1:1/d")
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("address", ["ftp://u:SEC'RET@h/x", "ftp://u:SEC RET@h/x", 's3a://AKIA:SEC"RET@bucket/x'])
def test_a_key_with_a_quote_in_an_address_of_files_is_not_shown(address: str) -> None:
    with pytest.raises(ConfigError, match="no keys in it"):
        located(address)
    source = ParquetSource(address, ("k",))
    assert "SEC" not in f"{source} {source!r}"


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
