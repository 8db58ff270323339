"""The hook by which zstore finds the store for "obstore+s3://" URLs and for obstore's own objects."""

from __future__ import annotations

from zstore.extensions.hookspecs import hookimpl
from zstore.extensions.offers import Offer

__all__ = ["register_stores"]

SCHEMES = (
    ("s3", ("s3a",)),
    ("gs", ("gcs",)),
    ("az", ("abfs", "abfss", "adl")),
    ("http", ("https",)),
    ("file", ()),
    ("memory", ()),
)
CLASSES = ("S3Store", "GCSStore", "AzureStore", "HTTPStore", "LocalStore", "MemoryStore")


@hookimpl
def register_stores() -> list[Offer]:
    """The schemes that begin with "obstore+", and the classes of obstore."""
    target = "zstore_obstore.store:ObstoreStore"
    schemes = [
        Offer(f"obstore+{name}", target, tuple(f"obstore+{alias}" for alias in aliases))
        for name, aliases in SCHEMES
    ]
    return [*schemes, *(Offer(f"obstore.store.{name}", target) for name in CLASSES)]
