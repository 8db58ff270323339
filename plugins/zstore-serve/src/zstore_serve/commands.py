"""The commands `zstore serve`, `zstore view` and `zstore export`."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

import click

from zstore.plugin.commands import (
    how_options,
    run_job,
    say,
    selected,
    selection_options,
    show_progress,
    storage_options,
)
from zstore_serve.export import export as write

__all__ = ["export", "serve", "view"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _server_options(port: int, command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `serve` and `view` share; `port` is the default of one of them."""
    origins = "Let web pages of this origin (https://example.org) read answers; may be repeated."
    places = "Address to listen at. Any but the loopback lets other machines in."
    options = [
        click.argument("stores", nargs=-1, required=True),
        click.option("--host", default="127.0.0.1", show_default=True, help=places),
        click.option(
            "--port", type=click.IntRange(0, 65535), default=port, show_default=True,
            help="Port to listen at; 0 for any that is free.",
        ),
        click.option(
            "--max-age", type=click.IntRange(min=0), default=60, show_default=True,
            help="Seconds for which browsers may keep answers, and the server chunks of stores with latency.",
        ),
        click.option(
            "--cells", type=click.IntRange(min=1), default=1 << 24, show_default=True,
            help="The most cells that are read for one answer.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
            help="The most seconds that one answer may take.",
        ),
        click.option(
            "--clients", type=click.IntRange(min=1), default=512, show_default=True,
            help="The most connections at once; more are refused.",
        ),
        click.option("--allow-origin", multiple=True, metavar="ORIGIN", help=origins),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return storage_options(command)


@click.command()
@partial(_server_options, 8080)
@click.option(
    "--static", type=click.Path(), metavar="FOLDER", help="Write a page and all tiles to this folder instead."
)
@click.option(
    "--zarr", "as_zarr", is_flag=True, help="Serve documents and chunks instead, for any reader of Zarr."
)
@click.option("--resume", is_flag=True, help="Go on with a --static that was interrupted.")
@click.option("--overwrite", is_flag=True, help="Replace the folder that an earlier --static wrote.")
def serve(
    stores: tuple[str, ...], static: str | None, as_zarr: bool, resume: bool, overwrite: bool, **options: Any
) -> None:
    """Serve STORES over HTTP: map tiles (XYZ, TileJSON, WMTS, OGC API – Tiles) and values.

    With --zarr, each is served as Zarr under its name: arrays, groups, views, and files of other kinds.
    """
    if static is None and (resume or overwrite):
        raise click.UsageError("--resume and --overwrite need --static")
    if static is not None and as_zarr:
        raise click.UsageError("--zarr serves, and --static writes; expected one of them")
    if static is None:
        run(stores, as_zarr=as_zarr, **options)
        return
    from zstore_serve.export import export_site

    with show_progress("writing", unit="tiles") as progress:
        count = export_site(stores, static, overwrite=overwrite, resume=resume, progress=progress)
    click.echo(f"{static}: {count} tiles, and index.html that shows them")


def _parse_zooms(value: Any) -> Any:
    """The (first, last) zoom of a text like 4 or 0-5."""
    if not isinstance(value, str):
        return value
    parts = value.split("-")
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        raise click.BadParameter(f"{value!r}; expected a zoom or a range of zooms, like 4 or 0-5")
    return int(parts[0]), int(parts[-1])


@click.command()
@click.argument("store")
@click.argument("target")
@storage_options
@click.option("--collection", metavar="ID", help="Which grid of STORE, where it has several.")
@click.option(
    "--tiles",
    metavar="SET",
    help="Tile matrix set of a folder.  [default: WebMercatorQuad; pixels without a CRS]",
)
@click.option(
    "--zooms",
    type=_parse_zooms,
    metavar="A-B",
    help="First and last zoom.  [default: from all in one tile to the finest cells]",
)
@click.option(
    "--format",
    type=click.Choice(["png", "jpg", "webp"]),
    default="png",
    show_default=True,
    help="Format of the tiles.",
)
@click.option("--query", default="", help="What tiles show, as in their addresses: bands=1&rescale=0,99.")
@selection_options
@how_options(write)
def export(store: str, target: str, **options: Any) -> None:
    """Write tiles of STORE to TARGET: map.pmtiles, map.mbtiles, or a folder of z/x/y.

    \b
    zstore export scene.zarr map.pmtiles
    zstore export scene.zarr tiles --zooms 4-9 --format webp --query "bands=3,2,1&rescale=0,3000"
    """
    part = selected(store, options)
    count = run_job(options, write, part, target, label="writing", unit="tiles", target=target)
    say(options["as_json"], {"target": target, "tiles": count}, f"{target}: {count} tiles")


@click.command()
@partial(_server_options, 0)
def view(stores: tuple[str, ...], **options: Any) -> None:
    """Show STORES on a map in the browser."""
    run(stores, opens_browser=True, **options)


def _is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _application(stores: tuple[str, ...], as_zarr: bool, cells: int, seconds: float, max_age: int) -> Any:
    if as_zarr:
        from zstore_serve.zarr import zarr_router

        return zarr_router(*stores, max_age=max_age, time=seconds)
    from zstore_serve.service import Settings, router

    return router(*stores, settings=Settings(cell_count=cells, time=seconds, max_age=max_age))


def run(
    stores: tuple[str, ...],
    *,
    host: str,
    port: int,
    max_age: int,
    cells: int,
    seconds: float,
    clients: int,
    allow_origin: tuple[str, ...],
    opens_browser: bool = False,
    as_zarr: bool = False,
) -> None:
    """Serve the stores until Ctrl-C."""
    import socket

    import uvicorn
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    application = _application(stores, as_zarr, cells, seconds, max_age)
    if _is_loopback(host):
        # A web site whose name is made to lead to this machine must not read what only this machine may.
        own = f"[{host}]" if ":" in host else host.lower()
        application = TrustedHostMiddleware(application, [*LOOPBACK, "[::1]", own])
    if allow_origin:
        application = CORSMiddleware(
            application,
            allow_origins=list(allow_origin),
            allow_methods=["GET", "HEAD"],
            allow_headers=["Range"],
            expose_headers=["Content-Range", "ETag"],
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, TypeError, ValueError) as error:
        # Python refuses a malformed host with an error that has no strerror.
        why = getattr(error, "strerror", None) or error
        raise click.ClickException(f"cannot listen at {host}, port {port}: {why}") from error
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    click.echo(f"{address} (Ctrl-C ends it)")
    if opens_browser:
        timer = threading.Timer(0.5, webbrowser.open, [address])
        timer.daemon = True
        timer.start()
    from zstore_serve.connections import ImpatientProtocol

    config = uvicorn.Config(
        application,
        log_level="warning",
        limit_concurrency=clients + 1,
        timeout_keep_alive=30,
        server_header=False,
        http=ImpatientProtocol,
    )
    uvicorn.Server(config).run(sockets=[listening])
