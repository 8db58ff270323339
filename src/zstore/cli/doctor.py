"""`zstore doctor`: describe the installation, to find out why something does not work."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

import zstore as library
from zstore._ext.engine.transfer import kept_size
from zstore._ext.requests.curl import version as libcurl_version
from zstore.cli.options import json_option, say, storage_options
from zstore.engine.documents import place
from zstore.engine.schedulers import thread_count
from zstore.errors import without_secrets
from zstore.extensions.registry import list_offers
from zstore.nodes.array import Array
from zstore.nodes.group import readable_members
from zstore.nodes.open import open_ahead
from zstore.nodes.slowness import slow_reasons
from zstore.nodes.zarr_names import innermost_codecs
from zstore.storage.objects.curl import trouble

KERNELS = (
    "codecs.native", "codecs.vlen", "engine.files", "engine.gather", "engine.references", "engine.select",
    "engine.transfer", "reduce.fold", "requests.curl", "resample.blocks", "resample.warp",
)  # fmt: skip
# Optional and required packages, with the extra that installs each; "" for required ones.
PACKAGES = {
    **dict.fromkeys(("numpy", "numcodecs", "fsspec", "pluggy"), ""),
    "pyproj": "geo",
    "rasterio": "raster",
    "click": "cli",
    "rich": "cli",
    "obstore": "cloud",
    "aiohttp": "http",
    "xarray": "xarray",
    "dask": "dask",
    "h5netcdf": "netcdf",
    "cftime": "time",
    "ml_dtypes": "ml-dtypes",
    "msgpack": "msgpack",
    "blosc2": "blosc2",
    "pcodec": "pcodec",
    "zfpy": "zfpy",
    "zarr": "zarr",
}
# By kind of bucket: variables with credentials, and files with credentials, by the variable that names
# another.
CREDENTIALS = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config")),
    ),
    "gs": (
        ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
        (("GOOGLE_APPLICATION_CREDENTIALS", "~/.config/gcloud/application_default_credentials.json"),),
    ),
    "az": (("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_SECRET"), ()),
}


@click.command()
@click.argument("paths", nargs=-1, metavar="[STORE]...")
@storage_options
@json_option
def doctor(paths: tuple[str, ...], as_json: bool) -> None:
    """Describe the installation: versions, kernels, plugins, threads, cache, and sources of credentials.

    Never what they are. A kernel or a plugin that cannot be loaded fails, as does a package that is missing.
    Of each STORE, it names what makes it slow to read, and the arrays whose chunks have no checksum, so that
    a changed byte would be read as another value.
    """
    kernels = {name: _trouble_of(name) for name in KERNELS}
    offers = [line for line in list_offers() if line.package != "zstore"]
    plugins = {f"{line.package} {line.version}": line.state for line in offers}
    troubles = [f"{line.package}: {line.name}: {line.detail}" for line in offers if line.state == "broken"]
    troubles += [f"kernel {name}: {trouble}" for name, trouble in kernels.items() if trouble]
    packages = {name: _version_of(name) or f"not installed{_extra(name)}" for name in PACKAGES}
    troubles += [
        f"package {name}: {packages[name]}"
        for name, extra in PACKAGES.items()
        if not extra and not _version_of(name)
    ]
    document = {
        "zstore": library.__version__,
        "place": str(Path(library.__file__).parent),
        "python": f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}",
        "kernels": {name: "fails" if trouble else "ok" for name, trouble in kernels.items()},
        "libcurl": f"{trouble()}: obstore makes all requests" if trouble() else libcurl_version(),
        "gdal": _gdal_version() or "not installed, in zstore[raster]",
        "packages": packages,
        "plugins": plugins,
        "threads": f"{thread_count()} of {os.cpu_count()} CPUs{_set_by('ZSTORE_THREADS')}",
        "cache": f"{kept_size()} bytes of decoded chunks kept now{_set_by('ZSTORE_CACHE_SIZE')}",
        "credentials": {kind: ", ".join(_found(kind)) or "none found" for kind in CREDENTIALS},
        "advice": [line for path in paths for line in _advise(path)],
        "troubles": troubles,
    }
    lines = []
    for name, value in document.items():
        if isinstance(value, str):
            lines.append(f"{name:<12} {value}")
        else:
            pairs = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, dict) else value
            lines += [f"{name if not k else '':<12} {pair}" for k, pair in enumerate(pairs or ["none"])]
    say(as_json, document, "\n".join(lines))
    if troubles:
        raise SystemExit(1)


def _advise(path: str) -> Iterator[str]:
    """Advice on the store at `path`: causes of slow reading, and arrays whose chunks have no checksum."""
    with open_ahead(path) as node:
        members = [("", node)] if isinstance(node, Array) else [*readable_members(node, None)]
        yield from slow_reasons(node, members)
        for _, array in members:
            if isinstance(array, Array) and not array.has_checksum:
                where = without_secrets(place(array.store, array.path))
                codecs = ", ".join(codec.name for codec in innermost_codecs(array.model))
                yield (
                    f"{where}: {codecs}: no checksum, so a changed byte can be read as another value; "
                    "`zstore convert --checksum` adds one"
                )


def _trouble_of(kernel: str) -> str:
    try:
        import_module(f"zstore._ext.{kernel}")
    except ImportError as error:
        return str(error)
    return ""


def _gdal_version() -> str | None:
    """The version of rasterio's GDAL; None without rasterio."""
    try:
        import rasterio
    except ImportError:
        return None
    version: str = rasterio.__gdal_version__
    return version


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extra(package: str) -> str:
    return f", in zstore[{PACKAGES[package]}]" if PACKAGES[package] else ", which zstore needs"


def _set_by(variable: str) -> str:
    return f" (set by {variable})" if os.environ.get(variable) else ""


def _found(kind: str) -> Iterator[str]:
    """The sources of credentials, but never the credentials."""
    variables, files = CREDENTIALS[kind]
    yield from (f"{name} is set" for name in variables if os.environ.get(name))
    for variable, default in files:
        place = os.environ.get(variable) or default
        if Path(place).expanduser().is_file():
            yield f"the file {place}"
