"""Writing datasets to Zarr: encoded by xarray as for its engine "zarr", checked and written by zstore.

`prepare` checks everything before the store is changed: names, encodings, codecs, attributes, units, regions
and the edges of dask's chunks. Then metadata, values in memory and values of dask are written, in this order;
this fails only where a store or a computation does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import xarray as xr

from zstore.engine.documents import KEYS, check_path
from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError
from zstore.guests.dask import fit_chunks
from zstore.guests.xarray.variables import VariablePlan, plan_new, plan_onto, resolve_region
from zstore.model.array import ZarrFormat
from zstore.model.json_attributes import render_attributes
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import create_group, open_group, rehearse
from zstore.storage.base import Store, join_key, join_url
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

MODES = ("w", "w-", "a", "a-", "r+")
# The key of a node with such a name would be that of a document.
DOCUMENT_NAMES = frozenset(name for names in KEYS.values() for name in names)


@dataclass(frozen=True)
class Options:
    """The options of writing a dataset; `zstore.guests.xarray.to_zarr` describes them."""

    mode: str | None = None
    encoding: Mapping[Any, Mapping[str, Any]] | None = None
    consolidated: bool | None = None
    append_dim: Any = None
    region: Any = None
    safe_chunks: bool = True
    align_chunks: bool = False
    compute: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """The options out of the arguments of a call.

        Raises
            TypeError: there is no such option.
        """
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(f"there is no option {name!r}; expected {', '.join(known)}")
        return cls(**options)

    def choose_mode(self) -> str:
        """The mode, by default the one that goes with the other options.

        Raises
            MetadataError: an unknown mode, or one that contradicts other options.
        """
        append_dim, region = self.append_dim, self.region
        chosen = self.mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
        if chosen not in MODES:
            raise MetadataError(f"mode is {chosen!r}; expected one of {', '.join(MODES)}")
        if append_dim is not None and chosen not in ("a", "a-"):
            raise MetadataError(
                f"append_dim is {append_dim!r} with mode {chosen!r}; expected mode 'a' or 'a-'"
            )
        if region is not None and chosen not in ("a", "a-", "r+"):
            raise MetadataError(f"region is {region!r} with mode {chosen!r}; expected mode 'r+' or 'a'")
        return chosen


class Destination(NamedTuple):
    """A store, a path in it, and the requested Zarr format."""

    store: Store
    path: str
    zarr_format: ZarrFormat | None

    @property
    def url(self) -> str:
        """The URL of the path, for messages."""
        return join_url(self.store.url, self.path)

    def below(self, path: str) -> Destination:
        """The destination at a path below this one."""
        return self._replace(path=join_key(self.path, path))


def as_dataset(data: Any, unnamed: str | None = None) -> xr.Dataset:
    """A dataset as it is, a data array with its coordinates; `unnamed` is the name of one without its own.

    Raises
        MetadataError: it is neither; or a data array without a name, and no `unnamed`.
    """
    if isinstance(data, xr.Dataset):
        return data
    if not isinstance(data, xr.DataArray):
        raise MetadataError(f"data is a {type(data).__name__}; expected a dataset or a data array")
    name = unnamed if data.name in (None, *data.coords) else data.name
    if name is None:
        raise MetadataError(f"data array is named {data.name!r}; expected a name that no coordinate has")
    return data.to_dataset(name=name)


@contextmanager
def open_place(
    store: Any, group: str | None, zarr_format: ZarrFormat | None, storage_options: Mapping[str, Any] | None
) -> Iterator[Destination]:
    """The location of a group in a path, URL, `Store` or `Group`.

    A store that is opened here is closed if writing fails; else the result needs it.
    """
    path = check_path(group)
    if isinstance(store, Group):
        yield Destination(store.store, join_key(store.path, path), zarr_format or store.zarr_format)
        return
    opened = open_store(store, storage_options=storage_options)
    try:
        yield Destination(opened, path, zarr_format)
    except BaseException:
        if opened is not store:
            opened.close()
        raise


def write_dataset(dataset: xr.Dataset, place: Destination, options: Options) -> Any:
    """Write a dataset to a group; returns the `Group`, or with compute=False dask's task that writes values.

    Raises
        StoreError, NotFoundError, MetadataError: as `prepare`.
    """
    group, stored = write_prepared(prepare(dataset, place, options), options)
    return group if stored is None else delay(stored, place.store)


def write_tree(
    tree: xr.DataTree, place: Destination, *, write_inherited_coords: bool = False, **options: Any
) -> Any:
    """Write every node of a tree to the group of its name; options and result are as for datasets.

    Raises
        StoreError, NotFoundError, MetadataError: as `prepare`; nothing was written then.
    """
    chosen = Options.of(options)
    if chosen.append_dim is not None or chosen.region is not None:
        raise MetadataError("append_dim and region are for datasets; expected neither for a tree")
    encoding = chosen.encoding or {}
    unknown = set(encoding) - set(tree.groups)
    if unknown:
        raise MetadataError(
            f"encoding names {sorted(unknown)}; expected nodes of the tree: {list(tree.groups)}"
        )
    prepared = []
    for node in tree.subtree:
        below = "" if node is tree else node.path.removeprefix(tree.path).strip("/")
        dataset = node.to_dataset(inherit=write_inherited_coords or node is tree)
        own = replace(chosen, encoding=encoding.get(node.path))
        prepared.append(prepare(dataset, place.below(below), own))
    apart = replace(chosen, consolidated=False)
    written = [write_prepared(node, apart) for node in prepared]
    if chosen.consolidated or (chosen.consolidated is None and chosen.choose_mode() != "r+"):
        open_group(place.store, "", "r+").consolidate()
    place.store.flush()
    if chosen.compute:
        return open_group(place.store, place.path, "r+")
    return delay([stored for _, stored in written], place.store)


class Prepared(NamedTuple):
    """A dataset that was checked and can be written.

    group        the existing group that is written to; None: a new one
    zarr_format  of the group
    plans        of the variables
    attributes   of the group
    """

    place: Destination
    mode: str
    group: Group | None
    zarr_format: ZarrFormat
    plans: list[VariablePlan]
    attributes: dict[str, Any]


def prepare(dataset: xr.Dataset, place: Destination, options: Options) -> Prepared:
    """Check a dataset and plan its variables; nothing is written.

    Raises
        StoreError: the group is there already (mode "w-"), or a group is where an array would be.
        NotFoundError: there is no group (mode "r+").
        MetadataError: arguments contradict each other or what is stored.
    """
    mode = options.choose_mode()
    _check_names(dataset, options.encoding)
    group, zarr_format = _find_group(place, mode)
    places: dict[str, slice] = {}
    if options.region is not None:
        if group is None:
            raise MetadataError(f"region is {options.region!r}, and there is nothing to write it into")
        dataset, places = resolve_region(dataset, group, options.region)
    if mode == "w":
        _check_source(dataset, place)
    prepared = Prepared(place, mode, group, zarr_format, [], {})
    variables, attributes = xr.conventions.encode_dataset_coordinates(dataset)
    prepared.plans.extend(_plan(variables, prepared, options, places))
    prepared.attributes.update(render_attributes(attributes, place.url))
    with located(place.url):
        create_group(MemoryStore(), zarr_format=zarr_format, attributes=prepared.attributes)
    return prepared


@contextmanager
def located(path: str) -> Iterator[None]:
    """A context in which errors name `path`, for trials in memory before writing there."""
    try:
        yield
    except ZstoreError as error:
        error.path, error.key = path, None
        raise


def _check_names(dataset: xr.Dataset, encoding: Mapping[Any, Any] | None) -> None:
    for name in [*dataset.variables, *dataset.dims]:
        if not isinstance(name, str) or not name or "/" in name:
            raise MetadataError(f"variable or dimension is named {name!r}; expected a string without '/'")
    for name in dataset.variables:
        if name in DOCUMENT_NAMES or check_path(str(name)) != name:
            raise MetadataError(f"variable is named {name!r}, as Zarr's own documents are")
    unknown = set(encoding or ()) - set(dataset.variables)
    if unknown:
        raise MetadataError(f"encoding names {sorted(map(str, unknown))}; expected variables of the dataset")


def _find_group(place: Destination, mode: str) -> tuple[Group | None, ZarrFormat]:
    """(the existing group to write to, None for a new one; the Zarr format to write)."""
    store, path, zarr_format = place
    found: Group | None = None
    try:
        found = open_group(store, path, "r+")
    except NotFoundError:
        if mode == "r+":
            raise
    if found is None or mode == "w":
        return None, zarr_format or 3
    is_empty = not path and not found.attrs and not [*found.keys()]
    if mode == "w-" and not is_empty:
        raise StoreError(
            "a group is there already; expected none, or mode='w' to replace it, 'a' to add to it",
            path=place.url,
        )
    if zarr_format not in (None, found.zarr_format):
        raise MetadataError(
            f"zarr_format is {zarr_format}; expected the group's {found.zarr_format}", path=place.url
        )
    return found, found.zarr_format


def _check_source(dataset: xr.Dataset, place: Destination) -> None:
    """Refuse to replace the store from which values of the dataset are still to be read."""
    unread = [variable for variable in dataset.variables.values() if not variable._in_memory]
    stated = [dataset.encoding.get("source"), *(variable.encoding.get("source") for variable in unread)]
    for source in {named for named in stated if unread and isinstance(named, str)}:
        try:
            same = open_store(source, read_only=True).url.rstrip("/") == place.store.url.rstrip("/")
        except StoreError:
            same = False
        if same:
            raise MetadataError(
                "the dataset is read from the store that mode='w' empties first; "
                "load() it, or write elsewhere",
                path=place.store.url,
            )


def _plan(
    variables: Mapping[Any, xr.Variable], prepared: Prepared, options: Options, places: Mapping[str, slice]
) -> Iterator[VariablePlan]:
    """The plan of each variable: a new array, or a region of an existing one."""
    place, mode, group, zarr_format, *_ = prepared
    encoding, append_dim = options.encoding or {}, options.append_dim
    members = {} if group is None else dict(group.members())
    there = {name: node for name, node in members.items() if isinstance(node, Array)}
    known = {name for array in there.values() for name in array.dims or ()}
    if append_dim is not None and there and append_dim not in known:
        raise MetadataError(f"append_dim is {append_dim!r}; expected one of {sorted(map(str, known))}")
    for name, variable in variables.items():
        array, where = there.get(str(name)), place.below(str(name)).url
        if array is None:
            if mode == "r+":
                raise MetadataError(f"variable {name!r} is not in the store; expected mode 'a' to add it")
            if name in members:
                raise StoreError(f"variable {name!r} is to be where a group is", path=place.store.url)
            plan = plan_new(str(name), variable, encoding.get(name), zarr_format)
            with located(where):
                made = rehearse(zarr_format, plan.options)
        elif mode == "a-" and append_dim is not None and append_dim not in variable.dims:
            continue
        else:
            if name in encoding:
                raise MetadataError(f"encoding is given for {name!r}, which the store has; expected none")
            plan = plan_onto(str(name), variable, array, append_dim, places)
            model = array.model.with_shape(plan.shape or array.shape)
            made = Array(array.store, array.path, model, Access(read_only=True))
        with located(where):
            plan = _cut(plan, made, options, is_shared=mode == "r+")
        yield plan


def _cut(plan: VariablePlan, array: Array, options: Options, *, is_shared: bool) -> VariablePlan:
    """The plan, with dask's chunks checked against the array's stored objects, or aligned to them."""
    variable = plan.variable
    if variable.chunks is None or not (options.safe_chunks or options.align_chunks):
        return plan
    lengths = fit_chunks(
        variable.chunks,
        array,
        plan.places,
        f"{plan.name!r} ({', '.join(map(str, variable.dims))})",
        cuts=options.align_chunks,
        remedy="align_chunks=True, or safe_chunks=False",
        is_shared=is_shared,
    )
    return plan._replace(variable=variable.chunk(dict(zip(variable.dims, lengths, strict=True))))


def write_prepared(prepared: Prepared, options: Options) -> tuple[Group, Any]:
    """Write a prepared dataset; returns the group, and with compute=False dask's remaining work."""
    group, arrays = _write_metadata(prepared, options.consolidated)
    sources, targets, regions = [], [], []
    for plan in prepared.plans:
        array = arrays[plan.name]
        if plan.variable.chunks is not None:
            sources.append(plan.variable.data)
            targets.append(array)
            regions.append(plan.places)
        elif plan.variable.size:
            array[plan.places] = plan.variable.values
    stored: Any = None if options.compute else []
    if sources:
        import dask.array

        stored = dask.array.store(  # type: ignore[no-untyped-call, unused-ignore]
            sources, targets, lock=False, regions=regions, compute=options.compute, return_stored=False
        )
    if stored is None:
        prepared.place.store.flush()
    return group, stored


def _write_metadata(prepared: Prepared, consolidated: bool | None) -> tuple[Group, dict[str, Array]]:
    """Write all metadata: the group, new arrays and new shapes; returns the group and its arrays by name."""
    place, mode, there, zarr_format, plans, attributes = prepared
    group = there
    had_summary = group is not None and open_group(place.store, "", "r+").model.consolidated is not None
    changes = group is None
    if group is None:
        overwrite = mode == "w"
        group = create_group(
            place.store, place.path, zarr_format=zarr_format, attributes=attributes, overwrite=overwrite
        )
    elif mode != "r+" and any(group.attrs.get(name) != value for name, value in attributes.items()):
        group.attrs.update(attributes)
        changes = True
    arrays = {}
    for plan in plans:
        if plan.array is None:
            arrays[plan.name] = group.create_array(plan.name, **plan.options)
            changes = True
            continue
        arrays[plan.name] = plan.array
        if plan.shape is not None and plan.shape != plan.array.shape:
            plan.array.resize(plan.shape)
            changes = True
    if consolidated or (consolidated is None and changes and (there is None or had_summary)):
        open_group(place.store, "", "r+").consolidate()
        group = open_group(place.store, place.path, "r+")
    return group, arrays


def delay(stored: Any, store: Store) -> Any:
    """A dask task that computes and writes the values, then flushes the store."""
    import dask

    return dask.delayed(_flush)(stored, store)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


def _flush(stored: Any, store: Store) -> None:
    """The last task, after those in `stored`."""
    store.flush()
