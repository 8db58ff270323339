"""`zstore serve` and `zstore view`: stores as tiles, and on a page in the browser."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import click

from zstore.cli.options import json_option, say, show_progress, storage_options

__all__ = ["export", "serve", "view"]

DEFAULT_PORT = 8080
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _serving(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of both words."""
    origins = "Web pages of this origin (https://example.org) may read answers."
    places = "Address to listen at; others than this machine's are for everybody who reaches them."
    options = [
        click.argument("stores", nargs=-1, required=True),
        click.option("--host", default="127.0.0.1", show_default=True, help=places),
        click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any that is free."),
        click.option(
            "--max-age", type=click.IntRange(min=0), default=60, show_default=True,
            help="Seconds for which browsers keep answers.",
        ),
        click.option(
            "--cells", type=click.IntRange(min=1), default=1 << 24, show_default=True,
            help="Most cells that are read for one answer.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
            help="Most time that one answer takes.",
        ),
        click.option("--allow-origin", multiple=True, metavar="ORIGIN", help=origins),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return storage_options(command)


@click.command()
@_serving
@click.option("--static", type=click.Path(), metavar="FOLDER", help="Write a page and tiles there instead.")
@click.option("--resume", is_flag=True, help="Go on with a folder of --static that was interrupted.")
@click.option("--overwrite", is_flag=True, help="Replace what an earlier --static wrote.")
def serve(stores: tuple[str, ...], static: str | None, resume: bool, overwrite: bool, **options: Any) -> None:
    """Serve STORES as map tiles: XYZ, TileJSON, WMTS, OGC API – Tiles, and values at places."""
    if static is None and (resume or overwrite):
        raise click.UsageError("--resume and --overwrite are of --static")
    if static is None:
        run(stores, **options)
        return
    from zstore_serve.export import export_site

    with show_progress("writing", unit="tiles") as progress:
        count = export_site(stores, static, overwrite=overwrite, resume=resume, progress=progress)
    click.echo(f"{static}: {count} tiles, and index.html that shows them")


def _zooms_of(value: Any) -> Any:
    """One zoom, or the first and the last, like 0-5."""
    if not isinstance(value, str):
        return value
    parts = value.split("-")
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        raise click.BadParameter(f"{value!r} is neither a zoom nor two, like 4 or 0-5")
    return int(parts[0]), int(parts[-1])


@click.command()
@click.argument("store")
@click.argument("target")
@storage_options
@click.option("--collection", metavar="ID", help="Which grid of STORE, where it holds several.")
@click.option("--tiles", metavar="SET", help="Tile matrix set of a folder's tiles. [default: the web's]")
@click.option("--zooms", type=_zooms_of, metavar="A-B", help="First and last zoom. [default: all there is]")
@click.option(
    "--format",
    type=click.Choice(["png", "jpg", "webp"]),
    default="png",
    show_default=True,
    help="What each tile is.",
)
@click.option("--query", default="", help="What is shown, as a tile's address has it: bands=1&rescale=0,99.")
@click.option("--resume", is_flag=True, help="Go on with an export that was interrupted.")
@click.option("--overwrite", is_flag=True, help="Replace TARGET.")
@json_option
def export(store: str, target: str, as_json: bool, **options: Any) -> None:
    """Write tiles of STORE to TARGET: map.pmtiles, map.mbtiles, or a folder of z/x/y.

    \b
    zstore export scene.zarr map.pmtiles
    zstore export scene.zarr tiles --zooms 4-9 --format webp --query "bands=3,2,1&rescale=0,3000"
    """
    from zstore_serve.export import export as write

    with show_progress("writing", unit="tiles") as progress:
        count = write(store, target, progress=progress, **options)
    say(as_json, {"target": target, "tiles": count}, f"{target}: {count} tiles")


@click.command()
@_serving
def view(stores: tuple[str, ...], **options: Any) -> None:
    """Look at STORES on a map in the browser."""
    if options["port"] is None:
        options["port"] = 0
    run(stores, opens=True, **options)


def _is_loopback(host: str) -> bool:
    """Whether an address is this machine's alone: there are more of them than one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def run(
    stores: tuple[str, ...],
    *,
    host: str,
    port: int | None,
    max_age: int,
    cells: int,
    seconds: float,
    allow_origin: tuple[str, ...],
    opens: bool = False,
) -> None:
    """Serve until Ctrl-C."""
    import socket

    import uvicorn
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from zstore_serve.service import Settings, router

    application: Any = router(*stores, settings=Settings(cell_count=cells, time=seconds, max_age=max_age))
    if _is_loopback(host):
        # A page of another site whose name leads to this machine is not to read what only this machine may.
        own = f"[{host}]" if ":" in host else host.lower()
        application = TrustedHostMiddleware(application, [*LOOPBACK, "[::1]", own])
    if allow_origin:
        application = CORSMiddleware(
            application, allow_origins=list(allow_origin), allow_methods=["GET", "HEAD"]
        )
    chosen = DEFAULT_PORT if port is None else port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, chosen))
        listening.listen(2048)
    except (OSError, TypeError, ValueError) as error:
        # A name that is none at all is refused before the system is asked.
        why = getattr(error, "strerror", None) or error
        raise click.ClickException(f"cannot listen at {host}, port {chosen}: {why}") from error
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    click.echo(f"{address} (Ctrl-C ends it)")
    if opens:
        timer = threading.Timer(0.5, webbrowser.open, [address])
        timer.daemon = True
        timer.start()
    config = uvicorn.Config(
        application, log_level="warning", limit_concurrency=512, timeout_keep_alive=30, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])
