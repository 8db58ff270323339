"""Former names of modules: importing one gives the module under its present name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# Longer names stand before those that they begin with.
FORMER = {
    "zstore.geo.validation.fixing.plan": "zstore.geo.validation.fixing.fix",
    "zstore.geo.validation.fixing.write": "zstore.geo.validation.fixing.fix",
    "zstore.geo.validation.rule": "zstore.geo.validation.view",
    "zstore.geo.conventions.decoding": "zstore.geo.conventions.content",
    "zstore.geo.conventions.variables": "zstore.geo.conventions.content",
    "zstore.geo.conventions.gdal": "zstore.geo.conventions.cf",
    "zstore.geo.conventions.nodes": "zstore.geo.conventions.base",
    "zstore.geo.conventions.model": "zstore.geo.conventions.base",
    "zstore.geo.conventions.lists": "zstore.geo.conventions.levels",
    "zstore.storage.locking": "zstore.storage.base",
    "zstore.model.consolidated": "zstore.model.group",
    "zstore.base.writer": "zstore.engine.intents",
    "zstore.base.misses": "zstore.errors",
    "zstore.geo.conventions.profiles": "zstore.geo.conventions.write",
    "zstore.jobs.room": "zstore.jobs.plan",
    "zstore.jobs.versions": "zstore.jobs.source",
    "zstore.jobs.workers": "zstore.jobs.runner",
    "zstore.jobs.parts": "zstore.jobs.plan",
    "zstore.codecs.native": "zstore.codecs.base",
    "zstore.codecs.options": "zstore.codecs.base",
    "zstore.nodes.request": "zstore.nodes.create",
    "zstore.model.chunking": "zstore.model.grid",
    "zstore.model.keys": "zstore.model.grid",
    "zstore.model.fill": "zstore.model.dtype",
    "zstore.model.order": "zstore.model.dtype",
    "zstore.base.settings": "zstore.base.limits",
    "zstore.base.content": "zstore.base.once",
    "zstore.base.steady": "zstore.storage.local",
    "zstore.base.directories": "zstore.storage.local",
    "zstore.codecs.chain": "zstore.codecs.base",
    "zstore.integrations.attributes": "zstore.model.json_attributes",
    "zstore.integrations.rasters.moments": "zstore.geo.rasters.stack",
    "zstore.integrations.rasters": "zstore.geo.rasters",
    "zstore.integrations": "zstore.guests",
    "zstore.conventions.order": "zstore.geo.conventions.base",
    "zstore.conventions.affines": "zstore.geo.conventions.levels",
    "zstore.conventions.zarr_conventions": "zstore.geo.conventions.geozarr",
    "zstore.conventions.content.bands": "zstore.geo.conventions.content",
    "zstore.conventions.content.stac": "zstore.geo.conventions.content",
    "zstore.conventions.content.time": "zstore.geo.conventions.content",
    "zstore.conventions.content.timeaxis": "zstore.geo.conventions.timeaxis",
    "zstore.conventions.units": "zstore.geo.conventions.content",
    "zstore.conventions.bounds": "zstore.geo.conventions.content",
    "zstore.conventions": "zstore.geo.conventions",
    "zstore.pyramid.budget": "zstore.geo.pyramid.passes",
    "zstore.pyramid.builder": "zstore.geo.pyramid.build",
    "zstore.pyramid.update": "zstore.geo.pyramid.build",
    "zstore.pyramid.masks": "zstore.geo.pyramid.dataset",
    "zstore.pyramid.record": "zstore.geo.pyramid.dataset",
    "zstore.pyramid.grids": "zstore.geo.pyramid.levels",
    "zstore.pyramid.layers": "zstore.geo.pyramid.levels",
    "zstore.pyramid.coverage": "zstore.geo.pyramid.tile_grid",
    "zstore.pyramid.reproject": "zstore.geo.pyramid.tile_grid",
    "zstore.pyramid.transform": "zstore.geo.pyramid.tile_grid",
    "zstore.resampling.cells": "zstore.geo.resampling.methods",
    "zstore.resampling.grid": "zstore.geo.resampling.methods",
    "zstore.resampling.run": "zstore.geo.resampling.methods",
    "zstore.geo.resampling.circle": "zstore.geo.resampling.methods",
    "zstore.geo.pyramid.update": "zstore.geo.pyramid.build",
    "zstore.geo.pyramid.boxes": "zstore.base.boxes",
    "zstore.engine.rectilinear": "zstore.engine.chunks",
    "zstore.engine.regular": "zstore.engine.chunks",
    "zstore.engine.consolidate": "zstore.engine.documents",
    "zstore.engine.locate": "zstore.engine.fetch",
    "zstore.engine.pool": "zstore.engine.schedulers",
    "zstore.indexing.arrays": "zstore.indexing.select",
    "zstore.indexing.fields": "zstore.indexing.select",
    "zstore.indexing.plans": "zstore.indexing.select",
    "zstore.indexing.runs": "zstore.indexing.select",
    "zstore.nodes.attributes": "zstore.nodes.node",
    "zstore.nodes.near": "zstore.nodes.nearby",
    "zstore.pyramid": "zstore.geo.pyramid",
    "zstore.resampling": "zstore.geo.resampling",
    "zstore.validation": "zstore.geo.validation",
    "zstore.reduction": "zstore.jobs.reduction",
    "zstore.upkeep.copy_plan": "zstore.jobs.upkeep.copy",
    "zstore.upkeep": "zstore.jobs.upkeep",
    "zstore.units": "zstore.jobs.units",
    "zstore.report": "zstore.geo.report",
    "zstore.geo.conventions.packing": "zstore.model.codec_packing",
}


def present_name(name: str) -> str | None:
    """The present name of a module that had another one; None for all others."""
    for former, present in FORMER.items():
        if name == former or name.startswith(f"{former}."):
            return present + name.removeprefix(former)
    return None


class _FormerNames:
    """Loads a module by its former name: one module object under both names."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("zstore.") or present_name(name) is None:
            return None
        # A loader without its base class: importing importlib.abc takes as long as all of this package.
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = present_name(spec.name)
        assert name is not None
        module = import_module(name)
        # By its own name: a former name may lead to another one.
        self._specs[module.__name__] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has given the module the specification of its former name.
        module.__spec__ = self._specs.pop(module.__name__)


def install() -> None:
    """Let modules be imported by their former names too."""
    if not any(type(finder).__name__ == _FormerNames.__name__ for finder in sys.meta_path):
        # Before the finder of files, which would load what it finds in a former package a second time.
        sys.meta_path.insert(0, _FormerNames())
