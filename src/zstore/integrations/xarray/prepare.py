"""A dataset and where it is to go, checked against each other before the store is touched.

What can be known beforehand is known here: names, encodings, codecs, attributes, units, places, and where
dask's chunks meet. What is left to `write` fails only where a store or a computation does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import xarray as xr

from zstore.engine.documents import KEYS, check_path
from zstore.errors import MetadataError, NotFoundError, StoreError, ZstoreError
from zstore.integrations.dask import align_chunks as align
from zstore.integrations.dask import is_aligned, write_edges
from zstore.integrations.spelling import spell_attributes
from zstore.integrations.xarray.plan import Plan, encode_new, encode_onto, resolve_region
from zstore.nodes.array import Array
from zstore.nodes.group import Group
from zstore.nodes.node import Access
from zstore.nodes.open import create_group, open_group
from zstore.pyramid.levels import rehearse
from zstore.storage.base import Store, join_key
from zstore.storage.memory import MemoryStore
from zstore.storage.url import open_store

__all__ = ["MODES", "Place", "Prepared", "Target", "choose_mode", "located", "open_place", "prepare"]

MODES = ("w", "w-", "a", "a-", "r+")
# A node of such a name would lie where a document does.
DOCUMENT_NAMES = frozenset(name for names in KEYS.values() for name in names)


class Place(NamedTuple):
    """A store, a path in it, the Zarr format asked for, and whether the store was opened for this."""

    store: Store
    path: str
    zarr_format: int | None
    is_owned: bool

    def close(self) -> None:
        """Close the store where it was opened for this."""
        if self.is_owned:
            self.store.close()


class Target(NamedTuple):
    """Where to write: a store, a path, and the group that is there to be written into."""

    store: Store
    path: str
    group: Group | None
    zarr_format: int
    mode: str


class Prepared(NamedTuple):
    """A dataset that can be written: what becomes of each variable, and the attributes of the group."""

    target: Target
    plans: list[Plan]
    attributes: dict[str, Any]


def open_place(store: Any, group: str | None, zarr_format: int | None, storage_options: Any) -> Place:
    """The store and the path that are meant by a path, URL, `Store` or `Group`, and a group below it."""
    path = check_path(group)
    if isinstance(store, Group):
        return Place(store.store, join_key(store.path, path), zarr_format or store.zarr_format, False)
    opened = open_store(store, storage_options=storage_options)
    return Place(opened, path, zarr_format, opened is not store)


def choose_mode(mode: str | None, append_dim: Any, region: Any) -> str:
    """The mode, or the one that goes with the other arguments.

    Raises
        MetadataError: there is no such mode, or the others contradict it.
    """
    chosen = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    if chosen not in MODES:
        raise MetadataError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    if append_dim is not None and chosen not in ("a", "a-"):
        raise MetadataError(f"append_dim is {append_dim!r} with mode {chosen!r}; expected mode 'a' or 'a-'")
    if region is not None and chosen not in ("a", "a-", "r+"):
        raise MetadataError(f"region is {region!r} with mode {chosen!r}; expected mode 'r+' or 'a'")
    return chosen


def prepare(
    dataset: xr.Dataset,
    place: Place,
    *,
    mode: str | None = None,
    encoding: Mapping[Any, Mapping[str, Any]] | None = None,
    append_dim: Any = None,
    region: Any = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
) -> Prepared:
    """The dataset as it is to be written; the arguments are those of `write_dataset`. Nothing is written.

    Raises
        StoreError: the group is there already (mode "w-"), or a group where an array is to be.
        NotFoundError: it is not (mode "r+").
        MetadataError: what is given contradicts itself or what is there.
    """
    mode = choose_mode(mode, append_dim, region)
    _check_names(dataset, encoding)
    target = _find_target(place, mode)
    if target.group is not None and region is not None:
        dataset, places = resolve_region(dataset, target.group, region)
    elif region is not None:
        raise MetadataError(f"region is {region!r}, and there is nothing to write it into")
    else:
        places = {}
    _check_source(dataset, target)
    plans, attributes = _plan(dataset, target, encoding or {}, append_dim, places)
    plans = [_cut(plan, mode, safe=safe_chunks, aligns=align_chunks) for plan in plans]
    spelled = spell_attributes(attributes, join_key(target.store.url, target.path))
    with located(join_key(target.store.url, target.path)):
        create_group(MemoryStore(), zarr_format=target.zarr_format, attributes=spelled)
    return Prepared(target, plans, spelled)


@contextmanager
def located(path: str) -> Iterator[None]:
    """Errors of what is tried in memory name the place that is meant."""
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


def _find_target(place: Place, mode: str) -> Target:
    store, path, zarr_format, _ = place
    found: Group | None = None
    try:
        found = open_group(store, path, "r+")
    except NotFoundError:
        if mode == "r+":
            raise
    is_empty = found is not None and not path and not found.attrs and not [*found.keys()]
    if found is not None and mode == "w-" and not is_empty:
        raise StoreError(
            "a group is there already; expected none, or mode='w' to replace it, 'a' to add to it",
            path=join_key(store.url, path),
        )
    if mode == "w":
        return Target(store, path, None, zarr_format or 3, mode)
    if found is not None and zarr_format not in (None, found.zarr_format):
        raise MetadataError(
            f"zarr_format is {zarr_format}; expected the group's {found.zarr_format}",
            path=join_key(store.url, path),
        )
    return Target(store, path, found, found.zarr_format if found is not None else zarr_format or 3, mode)


def _check_source(dataset: xr.Dataset, target: Target) -> None:
    """A dataset that still has to be read is never written over itself."""
    unread = [variable for variable in dataset.variables.values() if not variable._in_memory]
    if target.mode != "w" or not unread:
        return
    for source in {str(named) for named in _sources(dataset, unread)}:
        try:
            same = open_store(source, read_only=True).url.rstrip("/") == target.store.url.rstrip("/")
        except StoreError:
            same = False
        if same:
            raise MetadataError(
                "the dataset is read from the store that mode='w' empties first; "
                "load() it, or write elsewhere",
                path=target.store.url,
            )


def _sources(dataset: xr.Dataset, unread: Iterable[xr.Variable]) -> list[str]:
    stated = [dataset.encoding.get("source"), *(variable.encoding.get("source") for variable in unread)]
    return [source for source in stated if isinstance(source, str)]


def _plan(
    dataset: xr.Dataset,
    target: Target,
    encoding: Mapping[Any, Mapping[str, Any]],
    append_dim: Any,
    places: Mapping[str, slice],
) -> tuple[list[Plan], dict[str, Any]]:
    """What becomes of each variable, and the attributes of the group."""
    variables, attributes = xr.conventions.encode_dataset_coordinates(dataset)
    members = {} if target.group is None else dict(target.group.members())
    there = {name: node for name, node in members.items() if isinstance(node, Array)}
    if append_dim is not None and target.group is not None and there:
        known = {name for array in there.values() for name in array.dims or ()}
        if append_dim not in known:
            raise MetadataError(f"append_dim is {append_dim!r}; expected one of {sorted(map(str, known))}")
    plans = []
    for name, variable in variables.items():
        array = there.get(str(name))
        if array is None:
            if target.mode == "r+":
                raise MetadataError(f"variable {name!r} is not in the store; expected mode 'a' to add it")
            if name in members:
                raise StoreError(f"variable {name!r} is to be where a group is", path=target.store.url)
            plan = encode_new(str(name), variable, encoding.get(name), target.zarr_format)
            with located(join_key(target.store.url, target.path, str(name))):
                rehearse(target.zarr_format, plan.options)
        elif target.mode == "a-" and append_dim is not None and append_dim not in variable.dims:
            continue
        else:
            if name in encoding:
                raise MetadataError(f"encoding is given for {name!r}, which the store has; expected none")
            plan = encode_onto(str(name), variable, array, append_dim, places)
        plans.append(plan)
    return plans, attributes


def _cut(plan: Plan, mode: str, *, safe: bool, aligns: bool) -> Plan:
    """The plan with its dask chunks along the stored objects, or known to be.

    Mode "r+" is for several writers at once: there both ends must not lie within a stored object either.
    """
    chunks = plan.variable.chunks
    if chunks is None or not (safe or aligns):
        return plan
    model = plan.array if plan.array is not None else rehearse(3 if plan.is_v3 else 2, plan.options)
    if plan.shape is not None and plan.array is not None:
        shown = plan.array.model.with_shape(plan.shape)
        model = Array(plan.array.store, plan.array.path, shown, Access(read_only=True))
    cuts = []
    for axis, (lengths, place) in enumerate(zip(chunks, plan.places, strict=True)):
        edges = write_edges(model, axis)
        if not lengths or sum(lengths) == 0:
            cuts.append(lengths)
        elif aligns:
            cuts.append(align(lengths, edges, place.start))
        elif is_aligned(lengths, edges, place.start) and (
            mode != "r+" or {place.start, place.stop} <= set(edges.tolist())
        ):
            cuts.append(lengths)
        else:
            unit = model.shards or model.chunks
            raise MetadataError(
                f"dask's chunks {lengths} of {plan.name!r} along {plan.variable.dims[axis]!r}, from "
                f"{place.start} on, meet within stored objects of {unit[axis]} items, where writers would "
                "wait for each other or, on some stores, undo each other's work; rechunk, or "
                "align_chunks=True, or safe_chunks=False"
            )
    return plan._replace(variable=plan.variable.chunk(dict(zip(plan.variable.dims, cuts, strict=True))))
