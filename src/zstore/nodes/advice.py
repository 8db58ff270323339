"""Hints for error messages: what to type instead of zarr-python's names and options."""

from __future__ import annotations

MODULE_ADVICE = {
    "AsyncArray": "zstore.aio, or `await array.read_async(selection)` of any array",
    "AsyncGroup": "zstore.aio",
    "config": "zstore.set_threads, set_cache_size, set_limits and set_durable",
    "copy_all": "zstore.copy(source, target)",
    "copy_store": "zstore.copy(source, target)",
    "open_like": "zstore.zeros_like(array, store=..., path=...), or zstore.open_array",
    "print_debug_info": "`zstore doctor` on the command line",
    "consolidate_metadata": "zstore.consolidate(store, path)",
    "from_array": "zstore.create_array(store, data=array), or zstore.convert(array, target)",
    "tune": "zstore_tune.tune of the package zstore-tune",
    "save_array": "zstore.save(store, array)",
    "save_group": "zstore.save(store, name=array, ...)",
}
ARRAY_ADVICE = {
    "async_array": "`await array.read_async(selection)` and `await array.write_async(selection, value)`",
    "compressor": "array.compressors, which has all of them",
    "config": "the arguments of zstore.open_array",
    "create": "zstore.create_array",
    "from_dict": "zstore.create_hierarchy(store, {path: document})",
    "open": "zstore.open_array",
    "store_path": "array.store and array.path",
    "with_config": "array.cached(size), or zstore.open_array with other arguments",
    "synchronizer": "nothing in its place: writers lock the chunks that they write",
}
GROUP_ADVICE = {
    "array": "group.create_array(name, data=...)",
    "create": "group.create_array",
    "create_dataset": "group.create_array(name, ...)",
    "from_store": "zstore.create_group",
    "get_array": "group[name], or group.get(name)",
    "get_group": "group[name], or group.get(name)",
    "move": "zstore.convert(group[old], group.store, target_path=new), then `del group[old]`",
    "open": "zstore.open_group",
    "require_dataset": "group.require_array(name, shape=..., dtype=...)",
    "store_path": "group.store and group.path",
    "synchronizer": "nothing in its place: writers lock the documents that they write",
    "update_attributes_async": "group.update_attributes(attributes)",
}
OPTION_ADVICE = {
    "cache_attrs": "nothing in its place: attributes are kept as long as their node",
    "cache_metadata": "nothing in its place: metadata are kept as long as their array",
    "chunk_shape": "chunks",
    "chunk_store": "one store for documents and chunks",
    "codecs": "filters, serializer and compressors",
    "compressor": "compressors",
    "config": "nothing in its place: chunks of fill value alone are never stored, and results are in C order",
    "dimension_separator": "chunk_key_encoding",
    "meta_array": "nothing in its place: what is read is in numpy's arrays",
    "object_codec": "filters, or serializer in Zarr v3",
    "read_only": "mode='r'",
    "synchronizer": "nothing in its place: writers lock what they write",
    "use_consolidated": "zstore.open_consolidated, or another mode than 'r', which alone believes it",
    "write_data": "shape and dtype in place of data, where nothing is to be written",
    "write_empty_chunks": "nothing in its place: chunks of fill value alone are never stored",
    "zarr_version": "zarr_format",
}
