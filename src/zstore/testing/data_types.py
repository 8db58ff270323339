"""The contract of data types, as a test class to inherit from.

    from zstore.testing.data_types import DataTypeContract

    class TestMyType(DataTypeContract):
        names = ("acme.angle", {"name": "acme.angle", "configuration": {"unit": "turn"}})

The package must be installed, for zstore to find the types by these names. Items are drawn from a fixed seed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from zstore.errors import MetadataError
from zstore.model.dtype import DataType, order_of
from zstore.nodes.open import create_array, open_array
from zstore.storage.memory import MemoryStore

__all__ = ["DataTypeContract"]

Items = np.ndarray[Any, Any]


class DataTypeContract:
    """The tests of data types: inherit and define `names`."""

    # The `data_type` members of Zarr v3 documents to test: names, or names with configurations.
    names: ClassVar[tuple[str | Mapping[str, Any], ...]] = ()

    def items(self, data_type: DataType) -> Items:
        """13 items of random bits; to be overridden if not all bit patterns are valid."""
        raw = np.random.default_rng(3).bytes(13 * data_type.numpy.itemsize)
        return np.frombuffer(raw, data_type.numpy)

    def options(self, data_type: DataType) -> Iterator[dict[str, Any]]:
        """Options of `create_array` for arrays of the type."""
        if 3 in data_type.formats:
            yield {}
            yield {"shards": (10,)}
            if not data_type.is_object and order_of(data_type.numpy) is not None:
                yield {"serializer": {"name": "bytes", "configuration": {"endian": "big"}}}
        if 2 in data_type.formats:
            yield {"zarr_format": 2}

    def types(self) -> Iterator[DataType]:
        """The data type behind each name."""
        assert self.names, "a contract without names tests nothing"
        return map(DataType.restore, self.names)

    def test_documents_say_it_back(self) -> None:
        for data_type in self.types():
            assert (
                DataType.restore(json.loads(json.dumps(data_type.describe(), allow_nan=False))) == data_type
            )
            assert pickle.loads(pickle.dumps(data_type)) == data_type
            if 2 in data_type.formats and not data_type.is_object:
                for order in ("little", "big"):
                    found, stored = DataType.from_typestr(data_type.typestr(order))
                    assert found.numpy == data_type.numpy
                    assert stored in (order, None)

    def test_an_unknown_option_is_refused(self) -> None:
        for data_type in self.types():
            configuration = {**data_type.configuration, "an option that nobody has": 1}
            try:
                DataType.restore({"name": data_type.name, "configuration": configuration})
            except MetadataError:
                continue
            raise AssertionError(f"data type {data_type.name!r} took {configuration}")

    def test_numpy_holds_it_in_native_order(self) -> None:
        for data_type in self.types():
            assert data_type.numpy.isnative
            for held in () if data_type.is_object else (data_type.numpy, data_type.numpy.newbyteorder(">")):
                assert DataType.from_numpy(held).numpy == data_type.numpy

    def test_fill_values_keep_every_bit(self) -> None:
        for data_type in self.types():
            for value in (data_type.default_fill(), *self.items(data_type)):
                for zarr_format in data_type.formats:
                    document = data_type.render_fill(value, zarr_format)
                    again = data_type.parse_fill(
                        json.loads(json.dumps(document, allow_nan=False)), zarr_format
                    )
                    assert data_type.fill_bits(again) == data_type.fill_bits(value), document

    def test_nonsense_is_no_fill_value(self) -> None:
        for data_type in self.types():
            try:
                found = data_type.parse_fill({"nobody has": "such a member"}, max(data_type.formats))
            except MetadataError:
                continue
            raise AssertionError(f"data type {data_type.name!r} took it for {found!r}")

    def test_arrays_hold_it(self) -> None:
        for data_type in self.types():
            items = self.items(data_type)
            for options in self.options(data_type):
                store = MemoryStore()
                create_array(store, shape=(13,), chunks=(5,), dtype=data_type, **options)[...] = items
                array = open_array(store, mode="r")
                assert array[...].dtype == data_type.numpy
                # Zarr v2 has no names, so another type with the same dtype may be read back.
                assert array.zarr_format == 2 or array.model.data_type == data_type
                found = [data_type.fill_bits(item) for item in array[...]]
                assert found == [data_type.fill_bits(item) for item in items], options
