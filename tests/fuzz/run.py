"""Fuzz targets for a while, with a limit on memory: `python tests/fuzz/run.py SECONDS [TARGET...]`.

With `--atheris` before SECONDS, atheris guides what is tried by what it reaches, in a process for each
target; by default those that parse documents.

A finding is written to the working directory, named, and fails.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

MEMORY_SIZE = 3 << 30


def main(words: list[str]) -> int:
    """Feed each target for its share of the time; the number of targets that failed."""
    is_guided = "--atheris" in words
    words = [word for word in words if word != "--atheris"]
    seconds = float(words[0])
    if is_guided and len(words) == 2:
        return guide(words[1], seconds)
    from targets import TARGETS, mutate, try_one

    if is_guided:
        names = words[1:] or [name for name, target in TARGETS.items() if target.is_text]
        share = str(seconds / len(names))
        return sum(
            subprocess.call([sys.executable, __file__, "--atheris", share, name]) != 0 for name in names
        )
    names = words[1:] or list(TARGETS)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_SIZE, MEMORY_SIZE))
    failed = 0
    for name in names:
        target = TARGETS[name]
        rng = random.Random(f"{name} {seconds}")
        assert try_one(target, target.seeds[0]), f"the seed of {name} is refused"
        end, count, taken = time.monotonic() + seconds / len(names), 0, 0
        while time.monotonic() < end:
            data = mutate(target, rng)
            count += 1
            try:
                taken += try_one(target, data)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                failed += 1
                where = Path(f"finding-{name.replace('/', '_').replace(' ', '-')}")
                where.write_bytes(data)
                print(f"{name}: {type(error).__name__}: {error} ({where})", flush=True)
                break
        print(f"{name}: {count} tried, {taken} taken", flush=True)
    return failed


def guide(name: str, seconds: float) -> int:
    """One target under atheris."""
    import atheris

    with atheris.instrument_imports(include=["zstore"]):
        from targets import TARGETS, try_one

        target = TARGETS[name]
        corpus = Path("build") / "fuzz" / name.replace(" ", "-")
        corpus.mkdir(parents=True, exist_ok=True)
        for place, seed in enumerate(target.seeds):
            (corpus / f"seed-{place}").write_bytes(seed)
            try_one(target, seed)  # what is imported late is instrumented, too
    options = [f"-max_total_time={int(seconds)}", f"-rss_limit_mb={MEMORY_SIZE >> 20}", str(corpus)]
    atheris.Setup([sys.argv[0], *options], lambda data: try_one(target, data))
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
