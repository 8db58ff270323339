"""`zstore serve` and `zstore view`: stores as tiles, and on a page in the browser."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import click

from zstore.cli.options import storage_options

__all__ = ["serve", "view"]

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
def serve(stores: tuple[str, ...], **options: Any) -> None:
    """Serve STORES as map tiles: XYZ, TileJSON, OGC API – Tiles, and values at places."""
    run(stores, **options)


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
