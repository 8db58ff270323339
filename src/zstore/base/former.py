"""Former names of modules: importing one gives the module under its present name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# The former names of modules, by their present ones; all of them without "zstore." before them.
PRESENT = {
    "geo.validation.fixing.fix": "geo.validation.fixing.plan geo.validation.fixing.write",
    "geo.validation.view": "geo.validation.rule",
    "geo.conventions.content": (
        "geo.conventions.decoding geo.conventions.variables conventions.content.bands "
        "conventions.content.stac conventions.content.time conventions.units conventions.bounds"
    ),
    "geo.conventions.cf": "geo.conventions.gdal",
    "geo.conventions.base": "geo.conventions.nodes geo.conventions.model conventions.order",
    "geo.conventions.levels": "geo.conventions.lists conventions.affines",
    "storage.base": "storage.locking",
    "model.group": "model.consolidated",
    "engine.intents": "base.writer",
    "errors": "base.misses",
    "geo.conventions.write": "geo.conventions.profiles",
    "jobs.plan": "jobs.room jobs.parts",
    "jobs.source": "jobs.versions",
    "jobs.runner": "jobs.workers",
    "codecs.base": "codecs.native codecs.options codecs.chain",
    "nodes.create": "nodes.request",
    "model.grid": "model.chunking model.keys",
    "model.dtype": "model.fill model.order",
    "base.limits": "base.settings",
    "base.once": "base.content",
    "storage.local": "base.steady base.directories",
    "model.json_attributes": "integrations.attributes",
    "geo.rasters.stack": "integrations.rasters.moments",
    "geo.rasters": "integrations.rasters",
    "guests": "integrations",
    "geo.conventions.geozarr": "conventions.zarr_conventions",
    "geo.conventions.timeaxis": "conventions.content.timeaxis",
    "geo.conventions": "conventions",
    "geo.pyramid.passes": "pyramid.budget",
    "geo.pyramid.build": "pyramid.builder pyramid.update geo.pyramid.update",
    "geo.pyramid.dataset": "pyramid.masks pyramid.record",
    "geo.pyramid.levels": "pyramid.grids pyramid.layers",
    "geo.pyramid.tile_grid": "pyramid.coverage pyramid.reproject pyramid.transform",
    "geo.resampling.methods": "resampling.cells resampling.grid resampling.run geo.resampling.circle",
    "base.boxes": "geo.pyramid.boxes",
    "engine.chunks": "engine.rectilinear engine.regular",
    "engine.documents": "engine.consolidate",
    "engine.fetch": "engine.locate",
    "engine.schedulers": "engine.pool",
    "indexing.select": "indexing.arrays indexing.fields indexing.plans indexing.runs",
    "nodes.node": "nodes.attributes",
    "nodes.nearby": "nodes.near",
    "geo.pyramid": "pyramid",
    "geo.resampling": "resampling",
    "geo.validation": "validation",
    "jobs.reduction": "reduction",
    "jobs.upkeep.copy": "upkeep.copy_plan",
    "jobs.upkeep": "upkeep",
    "jobs.units": "units",
    "geo.report": "report",
    "model.codec_packing": "geo.conventions.packing",
}
# Longer names stand before those that they begin with.
FORMER = dict(
    sorted(
        ((f"zstore.{name}", f"zstore.{home}") for home, names in PRESENT.items() for name in names.split()),
        reverse=True,
    )
)


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
