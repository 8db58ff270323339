"""Documents as they are written, byte for byte, in the layout of the specifications' examples."""

from __future__ import annotations

import numpy as np
import pytest

from zstore.model import v2, v3
from zstore.model.document import parse_json, render_json
from zstore.model.group import GroupModel
from zstore.nodes.create import ArrayRequest

V3_FLOAT = """\
{
  "zarr_format": 3,
  "node_type": "array",
  "shape": [10000, 1000],
  "data_type": "float64",
  "chunk_grid": {
    "name": "regular",
    "configuration": {
      "chunk_shape": [1000, 100]
    }
  },
  "chunk_key_encoding": {
    "name": "default",
    "configuration": {
      "separator": "/"
    }
  },
  "fill_value": "NaN",
  "codecs": [
    {
      "name": "bytes",
      "configuration": {
        "endian": "little"
      }
    },
    {
      "name": "gzip",
      "configuration": {
        "level": 1
      }
    }
  ],
  "attributes": {
    "foo": 42,
    "bar": "apples",
    "baz": [1, 2, 3, 4]
  },
  "dimension_names": ["rows", "columns"]
}"""

V3_STRUCT = """\
{
  "zarr_format": 3,
  "node_type": "array",
  "shape": [100],
  "data_type": {
    "name": "struct",
    "configuration": {
      "fields": [
        {
          "name": "x",
          "data_type": "float32"
        },
        {
          "name": "t",
          "data_type": {
            "name": "numpy.datetime64",
            "configuration": {
              "unit": "s",
              "scale_factor": 1
            }
          }
        }
      ]
    }
  },
  "chunk_grid": {
    "name": "regular",
    "configuration": {
      "chunk_shape": [100]
    }
  },
  "chunk_key_encoding": {
    "name": "default",
    "configuration": {
      "separator": "/"
    }
  },
  "fill_value": {
    "x": 1.5,
    "t": "NaT"
  },
  "codecs": [
    {
      "name": "bytes",
      "configuration": {
        "endian": "big"
      }
    }
  ],
  "attributes": {}
}"""

V3_STRING = """\
{
  "zarr_format": 3,
  "node_type": "array",
  "shape": [],
  "data_type": "string",
  "chunk_grid": {
    "name": "regular",
    "configuration": {
      "chunk_shape": []
    }
  },
  "chunk_key_encoding": {
    "name": "v2",
    "configuration": {
      "separator": "."
    }
  },
  "fill_value": "foo",
  "codecs": [
    {
      "name": "vlen-utf8"
    }
  ],
  "attributes": {}
}"""

V2_FLOAT = """\
{
  "zarr_format": 2,
  "shape": [10000, 10000],
  "chunks": [1000, 1000],
  "dtype": "<f8",
  "compressor": {
    "id": "blosc",
    "cname": "lz4",
    "clevel": 5,
    "shuffle": 1,
    "blocksize": 0
  },
  "fill_value": "NaN",
  "order": "C",
  "filters": [
    {
      "id": "delta",
      "dtype": "<f8",
      "astype": "<f4"
    }
  ],
  "dimension_separator": "."
}"""

V2_STRUCT = """\
{
  "zarr_format": 2,
  "shape": [10],
  "chunks": [10],
  "dtype": [
    ["r", "|u1"],
    [
      "g",
      ">i2",
      [2]
    ],
    [
      "b",
      [
        ["x", "<f4"]
      ]
    ]
  ],
  "compressor": null,
  "fill_value": "AQACAAMAAIA/",
  "order": "F",
  "filters": null,
  "dimension_separator": "/"
}"""

V2_STRING = """\
{
  "zarr_format": 2,
  "shape": [3],
  "chunks": [3],
  "dtype": "|O",
  "compressor": null,
  "fill_value": "",
  "order": "C",
  "filters": [
    {
      "id": "vlen-utf8"
    }
  ],
  "dimension_separator": "."
}"""

GROUP = """\
{
  "zarr_format": 3,
  "node_type": "group",
  "attributes": {
    "spam": "ham",
    "eggs": 42
  }
}"""

CASES = {
    "v3 float": (
        V3_FLOAT,
        {
            "shape": (10000, 1000),
            "dtype": "f8",
            "chunks": (1000, 100),
            "fill_value": np.nan,
            "compressors": {"name": "gzip", "configuration": {"level": 1}},
            "attributes": {"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]},
            "dimension_names": ["rows", "columns"],
        },
    ),
    "v3 struct": (
        V3_STRUCT,
        {
            "shape": (100,),
            "dtype": [("x", ">f4"), ("t", ">M8[s]")],
            "fill_value": {"x": 1.5, "t": np.datetime64("NaT", "s")},
            "compressors": None,
        },
    ),
    "v3 string": (
        V3_STRING,
        {"shape": (), "dtype": str, "fill_value": "foo", "compressors": None, "chunk_key_encoding": "v2"},
    ),
    "v2 float": (
        V2_FLOAT,
        {
            "shape": (10000, 10000),
            "dtype": "<f8",
            "chunks": (1000, 1000),
            "fill_value": np.nan,
            "compressors": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
            "filters": {"id": "delta", "dtype": "<f8", "astype": "<f4"},
            "zarr_format": 2,
        },
    ),
    "v2 struct": (
        V2_STRUCT,
        {
            "shape": (10,),
            "dtype": [("r", "u1"), ("g", ">i2", (2,)), ("b", [("x", "<f4")])],
            "fill_value": (1, (2, 3), (1.0,)),
            "compressors": None,
            "order": "F",
            "chunk_key_encoding": ("v2", "/"),
            "zarr_format": 2,
        },
    ),
    "v2 string": (V2_STRING, {"shape": (3,), "dtype": str, "compressors": None, "zarr_format": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_arrays_are_written_so(case):
    text, options = CASES[case]
    model = ArrayRequest(**options).model()
    module, key = (v2, ".zarray") if model.zarr_format == 2 else (v3, "zarr.json")
    assert render_json(module.render_array(model)[key]).decode() == text
    assert module.parse_array({key: parse_json(text.encode(), path="a")}, path="a") == model


def test_groups_are_written_so():
    model = GroupModel(3, {"spam": "ham", "eggs": 42})
    assert render_json(v3.render_group(model)["zarr.json"]).decode() == GROUP
    documents = v2.render_group(GroupModel(2, {"spam": "ham"}))
    assert {key: render_json(document).decode() for key, document in documents.items()} == {
        ".zgroup": '{\n  "zarr_format": 2\n}',
        ".zattrs": '{\n  "spam": "ham"\n}',
    }
