"""Fixing fill values: what an array says of nodata, as every reader takes it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zstore.conventions.variables import decode_fill, encode_fill, fit_nodata
from zstore.errors import MetadataError
from zstore.model import v3
from zstore.model.document import render_json
from zstore.storage.base import join_key
from zstore.validation.fixing.plan import Draft
from zstore.validation.rules.variables import has_no_fill, is_unreadable_fill
from zstore.validation.view import ArrayView

__all__ = ["fix_fill_values", "implied_nodata", "nodata_attributes"]


def nodata_attributes(nodata: int | float, dtype: np.dtype[Any], zarr_format: int) -> dict[str, Any]:
    """`_FillValue` as xarray reads it: base64 for floats in Zarr v3, beside a plain `missing_value`."""
    encoded = encode_fill(nodata, dtype, zarr_format)
    if encoded is None:
        return {}
    return {"_FillValue": encoded} | ({"missing_value": nodata} if isinstance(encoded, str) else {})


def implied_nodata(array: ArrayView) -> int | float | None:
    """The nodata of a Zarr v3 array that GDAL alone described: its fill value, which nobody else reads so."""
    stated = ("_FillValue", "missing_value", "grid_mapping")
    if array.zarr_format != 3 or "_CRS" not in array.attrs or array.dtype.kind not in "iuf":
        return None
    if array.fill_value is None or any(array.attrs.get(name) is not None for name in stated):
        return None
    return fit_nodata(array.fill_value, array.dtype)


def fix_fill_values(draft: Draft) -> None:
    """`_FillValue` as xarray reads it, and a fill value where Zarr v3 has none."""
    for array in draft.hierarchy.arrays:
        if has_no_fill(array):
            _fix_no_fill(draft, array)
        stated: Any = array.attrs.get("_FillValue")
        if stated is None or array.dtype.kind not in "iuf":
            continue
        is_list = isinstance(stated, list)
        is_text_in_v2 = isinstance(stated, str) and (array.zarr_format == 2 or array.dtype.kind != "f")
        if not (is_unreadable_fill(array) or is_list or is_text_in_v2):
            continue
        try:
            nodata = decode_fill(stated, array.dtype)
        except MetadataError as error:
            draft.refuse("GZ-16", array, error.message)
            continue
        changes = nodata_attributes(nodata, array.dtype, array.zarr_format)
        if not changes:
            draft.refuse("GZ-16", array, f"_FillValue {stated!r} has no other spelling")
            continue
        message = f"_FillValue {stated!r} written as {changes['_FillValue']!r}"
        draft.update("GZ-16", array, message, changes)


def _fix_no_fill(draft: Draft, array: ArrayView) -> None:
    value: Any = draft.fill_value
    for name in ("missing_value", "_FillValue"):
        if array.attrs.get(name) is not None:
            value = array.attrs[name]
    if value is None:
        message = "nothing says what the array holds where no chunk is; expected --fill-value"
        draft.refuse("ZS-08", array, f"{message}, which GDAL takes for nodata")
        return
    try:
        fitted = decode_fill(value, array.dtype)
    except MetadataError as error:
        draft.refuse("ZS-08", array, error.message)
        return
    key = join_key(array.path, v3.KEY)
    document = json.loads(bytes(draft.store.get(key) or b"{}"))
    data_type = array.node.model.data_type
    document["fill_value"] = data_type.render_fill(array.dtype.type(fitted), 3)
    draft.store.put(key, render_json(document))
    draft.note("ZS-08", array, f"fill_value is {document['fill_value']}")
