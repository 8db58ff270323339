"""Pages of lists as servers write them: read as obstore has them, or left to it."""

from __future__ import annotations

import pytest

from zstore.errors import StoreError
from zstore.storage.objects.listings import ListPage, read_page
from zstore.storage.url import open_store

from .bucket_server import BucketServer

AMAZON = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>x/</Prefix>'
    "<KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>1ueG&amp;=</NextContinuationToken>"
    "<Contents><Key>x/a b&amp;&#233;+%20</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
    "<ETag>&quot;ab12&quot;</ETag><Owner><ID>75aa</ID></Owner><Size>12</Size></Contents>"
    "<Contents><Key>x/d/</Key><Size>0</Size><StorageClass>STANDARD</StorageClass></Contents>"
    "<CommonPrefixes><Prefix>x/c/</Prefix></CommonPrefixes></ListBucketResult>"
)
PAGE = ListPage(
    [
        {"path": "x/a bé&+%20".replace("é&", "&é"), "size": 12, "e_tag": '"ab12"'},
        {"path": "x/d", "size": 0, "e_tag": None},
    ],
    ["x/c"],
    "1ueG&=",
)


def written(key: str, size: str = "1", more: str = "<IsTruncated>false</IsTruncated>") -> str:
    return (
        f"<ListBucketResult>{more}<Contents><Key>{key}</Key><Size>{size}</Size></Contents></ListBucketResult>"
    )


@pytest.mark.parametrize(
    "text",
    [AMAZON, AMAZON.replace("><", ">\n  <"), AMAZON.partition(" xmlns=")[0] + AMAZON.partition('01/"')[2]],
)
def test_a_page_is_read(text: str) -> None:
    assert read_page(text.encode()) == PAGE


def test_names_are_those_of_all_scripts() -> None:
    page = read_page(written("a/温度.zarr/c/0").encode())
    assert page == ListPage([{"path": "a/温度.zarr/c/0", "size": 1, "e_tag": None}], [], None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>sign in</html>",
        "<Error><Code>SlowDown</Code></Error>",
        AMAZON[:-1],
        AMAZON.encode().decode("latin-1").replace("ab12", "\x01"),
        AMAZON.replace("UTF-8", "UTF-16").encode("utf-16").decode("latin-1"),
        AMAZON.replace("<ListB", '<!DOCTYPE a [<!ENTITY a "aaaa">]><ListB').replace("ab12", "&a;"),
        AMAZON.replace("ab12", "&a;"),
        AMAZON.replace("IsTruncated", "IsCut"),
        AMAZON.replace("NextContinuationToken", "Token"),
        AMAZON.replace("1ueG&amp;=", ""),
        written("a", "-1"),
        written("a", "many"),
        written("a", "9" * 5000),
        written("a", ""),
        written(""),
        written("/a"),
        written("a//b"),
        written("a/../b"),
        written("."),
        written("a&#10;b"),
        written("a", more="<IsTruncated>maybe</IsTruncated>"),
        "<a>" * 100_000 + "</a>" * 100_000,
    ],
)
def test_whatever_else_is_left_to_obstore(text: str) -> None:
    assert read_page(text.encode("latin-1", "replace")) is None


@pytest.mark.parametrize("tokens", [("a",), ("a", "b", "c")])
def test_names_whose_pages_go_round_are_refused(
    tokens: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    monkeypatch.setenv("ZSTORE_LIBCURL", "on")
    asked: list[str] = []

    def listing(bucket: str, query: dict[str, str]) -> bytes:
        asked.append(query.get("continuation-token", ""))
        if len(asked) > 20:  # else a list that is not refused would never end
            return written("a").encode()
        token = f"<NextContinuationToken>{tokens[(len(asked) - 1) % len(tokens)]}</NextContinuationToken>"
        return written("a", more=f"<IsTruncated>true</IsTruncated>{token}").encode()

    with BucketServer() as server:
        monkeypatch.setattr(server, "listing", listing)
        store = open_store("s3://b", storage_options=server.options())
        with pytest.raises(StoreError, match="gave the continuation token 'a' twice"):
            store.list_children()
    assert asked == ["", *tokens]
