"""`zstore verify`: check that every chunk can be read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from zstore import verify as check
from zstore.cli.options import (
    FILE,
    PLACE,
    how_options,
    run_job,
    say,
    show_unfinished,
    storage_options,
)

# The exit code for each kind of damage, the worst first, and its word where damages are counted.
EXIT_CODES = {"chunk": 1, "document": 1, "unreachable": 3, "missing": 4}
WORDS = {
    "chunk": "damaged", "document": "damaged", "unreachable": "unreachable", "missing": "never written",
}  # fmt: skip


@click.command()
@click.argument("path")
@storage_options
@click.option("--array", "inside", metavar="NAME", help="Only the array or group of this name below PATH.")
@click.option("--expect-complete", is_flag=True, help="Chunks that were never written are a failure too.")
@click.option("--missing", is_flag=True, hidden=True, help="As --expect-complete, but exit code 1.")
@click.option("--manifest", **FILE, help="Decode nothing: compare hashes with this file.")
@click.option("--journal", **PLACE, help="Keep in this directory how far it came, to go on from there.")
@how_options(check)
def verify(
    path: str,
    inside: str | None,
    expect_complete: bool,
    missing: bool,
    manifest: Any,
    **options: Any,
) -> None:
    """Read every chunk of PATH on all cores, and report damaged, unreachable and unfinished ones.

    Exit codes: 0 sound; 1 damaged or unfinished, or it failed; 3 not damaged, but chunks cannot be reached
    (links, disks that are not mounted, refusals); 4 chunks were never written, with --expect-complete.

    With --manifest, say what is changed, missing, new or unreadable; any of these is 1.

    \b
    zstore verify scene.zarr
    zstore verify scene.zarr --expect-complete
    zstore verify copy.zarr --manifest scene.sha256
    """
    from zstore.errors import clean

    if (missing or expect_complete) and manifest is not None:
        raise click.UsageError("--expect-complete does not go with --manifest, which says what is missing")
    result = run_job(
        options,
        check,
        path,
        inside,
        expect_complete=expect_complete or missing,
        manifest=manifest,
        label="verifying",
        unit="chunks" if manifest is None else "bytes",
        target=path,
    )
    if options["as_json"]:
        say(True, {"path": path, "is_sound": result.is_sound, **asdict(result)}, "")
    else:
        for damage in result.damages:
            where = damage.key if damage.key is not None else damage.path or "/"
            cause = clean(" ".join(damage.cause.split()))
            click.echo(f"{click.style(damage.kind, fg='red')} {clean(where)}: {cause}")
        show_unfinished(result.unfinished)
        left_out = result.damage_count - len(result.damages)
        if left_out:
            click.echo(f"... and {left_out} more")
        counts = (
            f"{result.array_count} arrays, {result.chunk_count} chunks, "
            f"{result.missing_count} never written, {result.stray_count} outside their arrays"
        )
        if manifest is not None:
            counts = f"{result.key_count} keys"
        counted: dict[str, int] = {}
        for kind, count in result.kind_counts.items():
            word = "not as the manifest says" if manifest is not None else WORDS[kind]
            counted[word] = counted.get(word, 0) + count
        faults = [f"{counted[word]} {word}" for word in sorted(counted)]
        faults += [f"{len(result.unfinished)} unfinished"] if result.unfinished else []
        verdict = ", ".join(faults) or ("sound" if manifest is None else "as the manifest says")
        click.echo(f"{path}: {counts}: {verdict}")
    if not result.is_sound:
        is_told_apart = not (result.unfinished or missing or manifest is not None)
        raise SystemExit(_exit_code(result.kind_counts) if is_told_apart else 1)


def _exit_code(kinds: Collection[str]) -> int:
    """The exit code for kinds of damage: that of the worst."""
    return next(code for kind, code in EXIT_CODES.items() if kind in kinds)
