"""Documents that other implementations write are read as they mean them, and ours are read by them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr

from zstore.errors import UnsupportedError
from zstore.model import v2, v3
from zstore.model.document import parse_json, render_json
from zstore.model.group import GroupModel
from zstore.nodes.create import ArrayRequest

FIXTURES = Path(__file__).parents[2].parent / "shared" / "fixtures"
DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
FILLS = {"b": True, "i": -7, "u": 200, "f": np.nan, "c": complex(1.5, np.inf)}


def fill_for(dtype):
    return FILLS[np.dtype(dtype).kind]


def read(directory, names):
    found = {name: directory / name for name in names if (directory / name).exists()}
    return {name: parse_json(file.read_bytes(), path=str(file)) for name, file in found.items()}


def write(directory, documents):
    for name, document in documents.items():
        directory.joinpath(name).write_bytes(render_json(document))


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_zarr_python_v3_arrays_are_read(tmp_path, dtype):
    zarr.create_array(
        tmp_path,
        shape=(30, 40),
        chunks=(5, 10),
        shards=(10, 20),
        dtype=dtype,
        fill_value=fill_for(dtype),
        attributes={"a": [1, {"b": None}]},
        dimension_names=["y", None],
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    documents = read(tmp_path, ["zarr.json"])
    model = v3.parse_array(documents, path="")
    assert (model.shape, model.dtype, model.grid.chunk_shape) == ((30, 40), np.dtype(dtype), (10, 20))
    assert same_bits(model.fill_value, np.dtype(dtype).type(fill_for(dtype)))
    assert model.dimension_names == ("y", None)
    assert (model.keys.name, model.keys.separator) == ("v2", "/")
    assert model.attributes == {"a": [1, {"b": None}]}
    expected = {
        name: value for name, value in documents["zarr.json"].items() if name != "storage_transformers"
    }
    assert v3.render_array(model) == {"zarr.json": expected}


@pytest.mark.parametrize("dtype", [*DTYPES, ">i4", ">f8", ">c8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_zarr_python_v2_arrays_are_read(tmp_path, dtype, order):
    array = zarr.create_array(
        tmp_path,
        shape=(30, 40),
        chunks=(5, 10),
        dtype=dtype,
        fill_value=fill_for(dtype),
        attributes={"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K"},
        zarr_format=2,
        order=order,
    )
    documents = read(tmp_path, [".zarray", ".zattrs"])
    model = v2.parse_array(documents, path="")
    assert (model.shape, model.dtype) == ((30, 40), array.dtype)
    assert model.data_type.numpy == np.dtype(dtype).newbyteorder("=")
    assert same_bits(model.fill_value, np.asarray(array.fill_value, model.data_type.numpy))
    assert model.dimension_names == ("y", "x")
    assert (model.codecs[0].name == "transpose") == (order == "F")
    assert v2.render_array(model) == documents


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zarr_python_and_tensorstore_read_ours(tmp_path, dtype, zarr_format):
    fill_value = fill_for(dtype)
    options = {"dimension_names": ("y", "x"), "attributes": {"units": "K"}, "order": "F"}
    model = ArrayRequest(
        shape=(30, 40), dtype=dtype, chunks=(5, 10), fill_value=fill_value, zarr_format=zarr_format, **options
    ).model()
    write(tmp_path, (v3 if zarr_format == 3 else v2).render_array(model))
    array = zarr.open_array(tmp_path, mode="r")
    assert (array.shape, array.chunks, array.dtype) == ((30, 40), (5, 10), np.dtype(dtype))
    assert array.attrs["units"] == "K"
    assert same_bits(array[:1, :1], model.fill_value)
    if zarr_format == 3:
        assert array.metadata.dimension_names == ("y", "x")
    spec = {
        "driver": "zarr3" if zarr_format == 3 else "zarr",
        "kvstore": {"driver": "file", "path": f"{tmp_path}/"},
    }
    opened = tensorstore.open(spec, open=True).result()
    assert (opened.shape, opened.dtype.numpy_dtype) == ((30, 40), np.dtype(dtype))
    assert same_bits(opened[:1, :1].read().result(), model.fill_value)


def test_zarr_python_and_tensorstore_read_our_shards(tmp_path):
    model = ArrayRequest(
        shape=(30, 40), dtype="float32", chunks=(5, 10), shards=(10, 20), compressors=["zstd", "crc32c"]
    ).model()
    write(tmp_path, v3.render_array(model))
    assert zarr.open_array(tmp_path, mode="r").shards == (10, 20)
    kvstore = {"driver": "file", "path": f"{tmp_path}/"}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}, open=True).result()
    assert opened.chunk_layout.write_chunk.shape == (10, 20)
    assert opened.chunk_layout.read_chunk.shape == (5, 10)


@pytest.mark.parametrize(
    "compressor",
    ["zstd", "gzip", "blosc", ["zstd", "crc32c"], "numcodecs.zlib", {"id": "bz2", "level": 1}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_zarr_python_takes_the_codecs_that_names_stand_for(tmp_path, compressor):
    model = ArrayRequest(shape=(8,), dtype="int32", compressors=compressor).model()
    write(tmp_path, v3.render_array(model))
    array = zarr.open_array(tmp_path, mode="r+")
    array[:] = np.arange(8)
    assert array[:].tolist() == list(range(8))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_consolidated_metadata_goes_both_ways(tmp_path, zarr_format):
    root = zarr.open_group(tmp_path, mode="w", zarr_format=zarr_format, attributes={"r": 1})
    for path in ("a", "g/b", "g/h/c"):
        root.create_array(path, shape=(3,), dtype="int16", attributes={"path": path})
    zarr.consolidate_metadata(tmp_path, zarr_format=zarr_format)
    module = v3 if zarr_format == 3 else v2
    model = module.parse_group(read(tmp_path, ["zarr.json", ".zgroup", ".zattrs", ".zmetadata"]), path="")
    assert model.attributes == {"r": 1}
    assert set(model.consolidated) == {"a", "g", "g/b", "g/h", "g/h/c"}
    assert model.consolidated["g"].consolidated["h/c"].attributes == {"path": "g/h/c"}
    plain = {path: model.consolidated[path] for path in model.consolidated}
    write(tmp_path, module.render_group(GroupModel(zarr_format, {"r": 2}, plain)))
    again = zarr.open_group(tmp_path, mode="r", use_consolidated=True)
    assert again["g/h/c"].attrs["path"] == "g/h/c"
    assert sorted(again["g"].keys()) == ["b", "h"]


def fixture_nodes():
    if not FIXTURES.is_dir():
        return []
    wanted = ("zarr.json", ".zarray", ".zgroup")
    return sorted(file for file in FIXTURES.glob("stores/**/*") if file.name in wanted)


def normal_v3(document):
    """The document in the one form that rendering writes."""
    document = {"attributes": {}, **document}
    if document.get("consolidated_metadata", 0) is None:
        del document["consolidated_metadata"]
    if document["node_type"] == "array":
        if document.get("storage_transformers") == []:
            del document["storage_transformers"]
        keys = document["chunk_key_encoding"]
        keys = {"name": keys} if isinstance(keys, str) else keys
        separator = {"separator": {"default": "/", "v2": "."}[keys["name"]]}
        document["chunk_key_encoding"] = {"configuration": separator, **keys}
        codecs = [{"name": codec} if isinstance(codec, str) else codec for codec in document["codecs"]]
        document["codecs"] = [
            # zarr-python refuses those of numcodecs without a configuration, be it empty.
            {"configuration": {}, **codec}
            if codec["name"].startswith("numcodecs.")
            else {name: value for name, value in codec.items() if value or name != "configuration"}
            for codec in codecs
        ]
        kind = document["data_type"]["name"] if isinstance(document["data_type"], dict) else ""
        if kind.startswith("numpy.") and document["fill_value"] == -(2**63):
            document["fill_value"] = "NaT"
        if document.get("dimension_names", 0) is None:
            del document["dimension_names"]
    return document


def with_text_fill(document):
    """An array's document with text for the fill value where older writers wrote 0."""
    if document["fill_value"] != 0 or isinstance(document["dtype"], list):
        return document
    codecs = {item["id"] for item in document["filters"] or []}
    texts = {"S": "", "U": "", "O": "0" if "vlen-utf8" in codecs else 0}
    return {**document, "fill_value": texts.get(document["dtype"][1], document["fill_value"])}


def test_fixture_documents_render_to_what_they_say():
    files = fixture_nodes()
    if not files:
        pytest.skip(f"no fixtures at {FIXTURES}")
    compared = 0
    for file in files:
        names = ["zarr.json"] if file.name == "zarr.json" else [file.name, ".zattrs"]
        documents = read(file.parent, names)
        module = v3 if file.name == "zarr.json" else v2
        try:
            model = module.parse_node(documents, str(file))
        except UnsupportedError:
            continue
        rendered = (module.render_group if isinstance(model, GroupModel) else module.render_array)(model)
        if module is v3:
            expected = {"zarr.json": normal_v3(documents["zarr.json"])}
        else:
            expected = {name: document for name, document in documents.items() if document}
            if ".zarray" in expected:
                expected[".zarray"] = with_text_fill(expected[".zarray"])
                expected[".zarray"] = {"dimension_separator": ".", **expected[".zarray"]}
                expected[".zarray"]["filters"] = expected[".zarray"]["filters"] or None
        if rendered != expected:
            # As text a NaN equals itself.
            assert json.dumps(rendered, sort_keys=True) == json.dumps(expected, sort_keys=True), file
        compared += 1
    assert compared > len(files) // 2


@pytest.mark.parametrize("case", ["meta2", "meta3"])
def test_hostile_documents_are_refused(case):
    from zstore.errors import ZstoreError

    folders = sorted((FIXTURES / "hostile").glob(f"{case}_*")) if FIXTURES.is_dir() else []
    if not folders:
        pytest.skip(f"no fixtures at {FIXTURES}")
    # These are refused by the codecs.
    later = {"meta3_unknown_codec", "meta2_bad_compressor", "meta2_pickle_codec"}
    fine = {"meta3_must_understand_false", "meta3_huge_shape_window"}
    for folder in folders:
        if folder.name in later:
            continue

        def parse(folder=folder):
            if case == "meta3":
                return v3.parse_node(read(folder, ["zarr.json"]), str(folder))
            return v2.parse_node(read(folder, [".zarray", ".zattrs"]), str(folder))

        if folder.name in fine:
            parse()
            continue
        with pytest.raises(ZstoreError) as caught:
            parse()
        assert str(folder) in str(caught.value)
