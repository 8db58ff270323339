"""`tune`: a sample stored in every way that may suit it, read as it will be read, and what that took."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import zstore
from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.storage.local import LocalStore
from zstore_tune.choices import Options, choose_shards, item_size_of, list_chunks, list_codecs
from zstore_tune.lossy import FLOATS, errors_of, round_bits, to_integers
from zstore_tune.sample import Sample, take_sample

__all__ = ["ACCESSES", "Choice", "Tuning", "front", "tune"]

ACCESSES = ("whole", "windows", "series", "tiles")
SAMPLE_SIZE = 32 << 20
WINDOW = 256
WINDOW_COUNT, SERIES_COUNT = 32, 48
STRETCH = 1 << 16
ROUNDS = 3
BITSHUFFLED = {"name": "blosc", "configuration": {"cname": "zstd", "shuffle": "bitshuffle"}}
# What measures alike to within this is alike.
NOISE = 1.04
# Codecs that go on to be tried with all shapes, and the share of the time for choosing them.
MOST_CODECS = 4
USUAL_CODECS = 5
CODECS_SHARE = 0.4
# What "balanced" weighs: reading twice as fast is worth a sixth more bytes, writing half of that.
WEIGHTS = (4.0, 0.5, 1.0)


@dataclass(frozen=True)
class Choice:
    """A way to store the array, and what it takes for the sample.

    options       arguments of `zstore.create_array`, beside shape and dtype
    size          bytes stored
    object_count  values in the store
    write_time, read_times  seconds; of reads by access
    error         (largest, RMS) difference to the sample's items; None: they come back as they were
    rounding      what is lost, in words
    items         what the line of code says of the data type: that it is the array's, or for objects which
    label         "now": as the array is stored; "default": as `create_array` stores it; "balanced": the one
                  of the front that is good at all three
    is_best       whether no other choice is smaller, and faster to write, and faster to read
    """

    options: Mapping[str, Any]
    size: int
    object_count: int
    write_time: float
    read_times: Mapping[str, float]
    error: tuple[float, float] | None = None
    rounding: str = ""
    items: str = "dtype"
    label: str = ""
    is_best: bool = False

    @property
    def read_time(self) -> float:
        """The geometric mean of the seconds that each access takes."""
        return float(np.exp(np.mean(np.log([max(t, 1e-9) for t in self.read_times.values()]))))

    @property
    def code(self) -> str:
        """The line that makes an array so."""
        said = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"zstore.create_array(store, shape=shape, dtype={self.items}{said})"


@dataclass(frozen=True)
class Tuning:
    """What was found.

    where       the array
    sample      the shape of the sample; `sample_size` the bytes of its items
    choices     all that were measured, the smallest first
    read_sizes  bytes of items that are read, by access
    untried     how many there was no time for
    notes       what limits what this says
    """

    where: str
    shape: tuple[int, ...]
    dtype: str
    sample: tuple[int, ...]
    sample_size: int
    accesses: tuple[str, ...]
    choices: tuple[Choice, ...]
    read_sizes: Mapping[str, int]
    untried: int
    notes: tuple[str, ...]

    @property
    def front(self) -> tuple[Choice, ...]:
        """The choices that no other is better than in size, writing and reading at once."""
        return tuple(choice for choice in self.choices if choice.is_best)

    def speeds(self, choice: Choice) -> dict[str, float]:
        """MB of items a second, by "write" and by access."""
        read = {name: self.read_sizes[name] / taken / 1e6 for name, taken in choice.read_times.items()}
        return {"write": self.sample_size / choice.write_time / 1e6, **read}

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "array": self.where,
            "shape": self.shape,
            "dtype": self.dtype,
            "sample": {"shape": self.sample, "size": self.sample_size},
            "accesses": self.accesses,
            "choices": [
                {
                    "label": choice.label,
                    "is_best": choice.is_best,
                    "options": choice.options,
                    "size": choice.size,
                    "ratio": self.sample_size / max(1, choice.size),
                    "objects": choice.object_count,
                    "speeds": self.speeds(choice),
                    "error": None
                    if choice.error is None
                    else {"max": choice.error[0], "rms": choice.error[1]},
                    "rounding": choice.rounding,
                    "code": choice.code,
                }
                for choice in self.choices
            ],
            "untried": self.untried,
            "notes": self.notes,
        }


def tune(
    source: Any,
    *,
    array: str | None = None,
    access: Iterable[str] | None = None,
    lossy: bool = False,
    memory: int = 4 * SAMPLE_SIZE,
    seconds: float = 60.0,
    zarr_format: int = 3,
    scratch: str | Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """How an array is best stored: codecs, chunks and shards, measured on a sample of it.

    source    an array, a group (of which the array with most data is taken, or `array`), a path or URL of
              one, a .npy file, or a numpy array; of one far away, no more than the sample is read
    access    how it will be read, one or more of "whole", "windows" (256 × 256 anywhere, of the last two
              dimensions), "tiles" (the same, in step) and "series" (all times at one place); None: the whole
              and windows, and series where there are three dimensions
    lossy     measure rounding, too, with the error that it makes; of floats only
    memory    bytes that this takes; the sample is a quarter of it
    seconds   when to stop trying; what is measured by then is told
    scratch   a directory where the sample is stored, for a disk of that kind; None: the system's
    progress  is told how many of how many choices are measured

    Reads come from the system's memory, where what was written still is: they tell what decoding and
    assembling cost. From a slower disk or a bucket, what is smaller and in fewer objects gains.

    Raises
        NotFoundError: there is no such array.
        MetadataError: it holds nothing, or an argument is none of those above.
        UnsupportedError: nothing can be chosen for such items.
    """
    accesses = _check(access, memory, seconds, zarr_format)
    end = time.monotonic() + seconds
    sample = take_sample(source, array, memory // 4, accesses or ACCESSES, storage_options)
    if accesses is None:
        accesses = ("whole", "windows", "series") if sample.values.ndim > 2 else ("whole", "windows")
    notes = list(sample.notes)
    reads = {name: list(_selections(name, sample)) for name in accesses}
    read_sizes = {name: _read_size(sample, selections) for name, selections in reads.items()}
    with tempfile.TemporaryDirectory(dir=scratch, prefix="zstore-tune-") as place:
        rig = _Rig(sample, Path(place), reads, zarr_format, end, progress)
        choices = _try_all(rig, sample, lossy, zarr_format, notes)
    return Tuning(
        sample.where,
        sample.shape,
        _name(sample.dtype),
        sample.values.shape,
        sample.size,
        accesses,
        tuple(sorted(front(choices), key=lambda choice: choice.size)),
        read_sizes,
        rig.untried,
        tuple(notes),
    )


def _name(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def _check(
    access: Iterable[str] | None, memory: int, seconds: float, zarr_format: int
) -> tuple[str, ...] | None:
    if zarr_format not in (2, 3):
        raise MetadataError(f"zarr_format is {zarr_format!r}; expected 2 or 3")
    if memory < 1 << 16:
        raise MetadataError(f"memory is {memory} bytes; expected 64 KiB at least")
    if not seconds > 0:
        raise MetadataError(f"seconds is {seconds!r}; expected a time above 0")
    if access is None:
        return None
    wanted = tuple(dict.fromkeys([access] if isinstance(access, str) else access))
    for name in wanted:
        if name not in ACCESSES:
            raise MetadataError(f"access is {name!r}; expected one or more of {', '.join(ACCESSES)}")
    if not wanted:
        raise MetadataError(f"access names nothing; expected one or more of {', '.join(ACCESSES)}")
    return wanted


def _selections(access: str, sample: Sample) -> Iterator[Any]:
    """What is read of the sample for an access, the same for every choice."""
    box, ndim = sample.values.shape, sample.values.ndim
    chance = np.random.default_rng(0)
    if access == "whole":
        yield ...
        return
    if access == "series":
        for _ in range(SERIES_COUNT):
            place: list[Any] = [int(chance.integers(n)) for n in box]
            place[sample.time] = slice(None)
            yield tuple(place)
        return
    for _ in range(WINDOW_COUNT):
        place = [int(chance.integers(n)) for n in box]
        for axis in range(max(0, ndim - 2), ndim):
            length = min(box[axis], STRETCH if ndim == 1 else WINDOW)
            start = int(chance.integers(box[axis] - length + 1))
            start = start // length * length if access == "tiles" else start
            place[axis] = slice(start, start + length)
        yield tuple(place)


def _read_size(sample: Sample, selections: Sequence[Any]) -> int:
    share = sample.size / sample.values.size
    return int(share * sum(np.asarray(sample.values[selection]).size for selection in selections))


class _Rig:
    """Stores the sample, reads it, and takes the time."""

    def __init__(
        self,
        sample: Sample,
        place: Path,
        reads: Mapping[str, Sequence[Any]],
        zarr_format: int,
        end: float,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.sample = sample
        self.untried = 0
        self._place = place
        self._reads = reads
        self._format = zarr_format
        self._end = self._until = end
        self._progress = progress
        self._number = self._planned = 0
        self._done: dict[str, Choice | None] = {}

    def plan(self, count: int, share: float) -> None:
        """That many more choices are to be tried, within a share of the time that is left."""
        self._planned += count
        now = time.monotonic()
        self._until = now + share * max(0.0, self._end - now)

    def measure(
        self, options: Options, label: str = "", rounding: str = "", *, always: bool = False
    ) -> Choice | None:
        """A choice; None where the time is up, or the sample cannot be stored so."""
        key = repr(sorted(options.items()))
        if key not in self._done:
            if time.monotonic() > self._until and not always:
                self.untried += 1
                return None
            self._done[key] = self._measure({"zarr_format": self._format, **options}, rounding)
        self._number += 1
        if self._progress is not None:
            self._progress(self._number, max(self._planned, self._number))
        found = self._done[key]
        return found if found is None or not label else replace(found, label=label)

    def _measure(self, options: Options, rounding: str) -> Choice | None:
        values, place = self.sample.values, self._place / str(len(self._done))
        dtype = self.sample.dtype
        try:
            write_time = np.inf
            for _ in range(2):
                array = zstore.create_array(place, shape=values.shape, dtype=dtype, overwrite=True, **options)
                begin = time.perf_counter()
                array[...] = values
                write_time = min(write_time, time.perf_counter() - begin)
                if write_time > 0.5:
                    break
        except (ZstoreError, ImportError, TypeError, ValueError):
            # Not every codec takes every type, and not every shape divides the other.
            return None
        store = LocalStore(place, read_only=True)
        entries = [entry for entry in store.entries("") if not _is_document(entry.key)]
        read_times: dict[str, float] = {}
        for name, selections in self._reads.items():
            best = np.inf
            for _ in range(ROUNDS):
                # Anew, so that no round has chunks that the last one decoded.
                array = zstore.open_array(place, mode="r")
                begin = time.perf_counter()
                for selection in selections:
                    array[selection]
                best = min(best, time.perf_counter() - begin)
                if best > 0.5:
                    break
            read_times[name] = best
        back = zstore.open_array(place, mode="r")[...]
        error = None
        if rounding:
            error = errors_of(values, back)
            if error is None:
                return None
        elif not _is_same(values, back):
            raise UnsupportedError(f"items do not come back through {options!r}", path=self.sample.where)
        if self._format == 3:  # what `create_array` makes unless told otherwise
            del options["zarr_format"]
        size = sum(entry.size for entry in entries)
        items = _name(dtype) if isinstance(dtype, type) else "dtype"
        return Choice(options, size, len(entries), write_time, read_times, error, rounding, items)


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zattrs", ".zgroup")


def _is_same(values: np.ndarray, back: np.ndarray) -> bool:
    if values.dtype.names is not None:
        return all(_is_same(values[name], back[name]) for name in values.dtype.names)
    if values.dtype.kind == "V":
        return values.tobytes() == back.tobytes()
    if values.dtype.kind in "fcmM":
        return np.array_equal(values, back, equal_nan=True)
    return np.array_equal(values, back)


def _try_all(rig: _Rig, sample: Sample, lossy: bool, zarr_format: int, notes: list[str]) -> list[Choice]:
    """Codecs on chunks of the default shape; the best of them on all shapes, with and without shards."""
    item_size = item_size_of(sample)
    codecs = [(options, "") for options in list_codecs(sample, zarr_format)]
    if lossy:
        # Before those that take long and seldom win.
        codecs[USUAL_CODECS:USUAL_CODECS] = _list_rounding(sample, zarr_format, notes)
    shapes = list_chunks(sample, item_size)
    rig.plan(len(codecs) + 2, CODECS_SHARE)
    found = [rig.measure({"compressors": "zstd"}, "default", always=True)]
    if sample.now is not None and sample.now["zarr_format"] != zarr_format:
        notes.append(f"the array is Zarr v{sample.now['zarr_format']}; the choices are v{zarr_format}")
    elif sample.now is not None:
        found.append(rig.measure(_fit(sample.now, sample.values.shape), "now", always=True))
    if found[0] is None:
        raise UnsupportedError(
            f"items of data type {_name(sample.dtype)} cannot be stored", path=sample.where
        )
    first = [rig.measure(options, "", rounding) for options, rounding in codecs]
    chosen = _spread([choice for choice in (found[0], *first) if choice is not None])
    rest = []
    rig.plan(2 * len(chosen) * len(shapes), 1.0)
    for shape in shapes:
        shards = None
        if zarr_format == 3:
            shards = choose_shards(shape, sample.values.shape, item_size)
        for cut in ({"chunks": shape}, {"chunks": shape, "shards": shards})[: 1 + (shards is not None)]:
            for choice in chosen:
                options = {**cut, **{k: v for k, v in choice.options.items() if k != "zarr_format"}}
                rest.append(rig.measure(options, "", choice.rounding))
    labelled = {repr(choice.options) for choice in found if choice is not None}
    others = [c for c in (*first, *rest) if c is not None and repr(c.options) not in labelled]
    return [*(choice for choice in found if choice is not None), *others]


def _fit(now: Mapping[str, Any], box: Sequence[int]) -> Options:
    """The arguments that say how the array is stored, with chunks and shards no longer than the sample."""
    chunks = tuple(min(chunk, length) for chunk, length in zip(now["chunks"], box, strict=True))
    fitted = {**now, "chunks": chunks}
    del fitted["zarr_format"]
    if fitted.pop("shards") is not None:
        counts = zip(now["shards"], now["chunks"], chunks, box, strict=True)
        fitted["shards"] = tuple(
            min(shard // whole, -(-length // chunk)) * chunk for shard, whole, chunk, length in counts
        )
    return fitted


def _list_rounding(sample: Sample, zarr_format: int, notes: list[str]) -> list[tuple[Options, str]]:
    values = sample.values
    if values.dtype.str[1:] not in FLOATS:
        notes.append(f"items of {_name(sample.dtype)} have no lossy choices; floats have")
        return []
    made: list[tuple[Options, str]] = []
    for said, options in round_bits(values):
        made += [({**options, "compressors": codec}, said) for codec in ("zstd", BITSHUFFLED)]
    if not made:
        notes.append("neighbouring items share no information that rounding could keep, or need all bits")
    if zarr_format == 3:
        for said, options in to_integers(values):
            made.append(({**options, "compressors": "zstd"}, said))
    if zarr_format == 2:
        for options, _ in made:
            bits = options["filters"][0]["configuration"]
            options["filters"] = [{"id": "bitround", **bits}]
    return made


def _measures(choice: Choice) -> tuple[float, float, float]:
    return choice.size, choice.write_time, choice.read_time


def _is_beaten(choice: Choice, by: Choice) -> bool:
    """Whether another choice is nowhere worse, and somewhere better by more than noise."""
    if by.error is not None and (choice.error is None or by.error[1] > choice.error[1]):
        return False  # what loses more is another bargain
    pairs = list(zip(_measures(choice), _measures(by), strict=True))
    return all(b <= a for a, b in pairs) and any(b * NOISE < a for a, b in pairs)


def _weigh(choice: Choice) -> float:
    pairs = zip(_measures(choice), WEIGHTS, strict=True)
    return float(np.prod([max(measure, 1e-9) ** weight for measure, weight in pairs]))


def _spread(choices: Sequence[Choice]) -> list[Choice]:
    """The balanced of the front, the smallest, the fastest to read and to write; the smallest lossy one."""
    exact = [choice for choice in choices if choice.error is None]
    best = [c for c in exact if not any(_is_beaten(c, other) for other in exact)]
    picked = [min(best, key=_weigh), *(min(best, key=lambda c, n=n: _measures(c)[n]) for n in range(3))]
    picked += sorted((c for c in choices if c.error is not None), key=lambda c: c.size)[:1]
    unique = {repr(choice.options): choice for choice in picked}
    return list(unique.values())[: MOST_CODECS + 1]


def front(choices: Sequence[Choice]) -> list[Choice]:
    """The choices, with `is_best` where no other beats them, and the label "balanced" for the best of all."""
    marked = []
    for choice in choices:
        others = (other for other in choices if other is not choice)
        marked.append(replace(choice, is_best=not any(_is_beaten(choice, other) for other in others)))
    exact = [choice for choice in marked if choice.error is None and choice.is_best]
    if exact:
        best = min(exact, key=_weigh)
        label = f"{best.label}, balanced" if best.label else "balanced"
        marked[marked.index(best)] = replace(best, label=label)
    return marked
