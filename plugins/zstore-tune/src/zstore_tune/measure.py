"""`tune`: stores a sample in many ways, reads it as it will be read, and compares sizes and times."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Unpack

import numpy as np

import zstore
from zstore.errors import MetadataError, UnsupportedError, ZstoreError
from zstore.plugin.jobs import READS_ONLY, Estimate, How, HowWords, long_call
from zstore.plugin.stores import LocalStore
from zstore_tune.choices import Options, choose_shards, item_size_of, list_chunks, list_codecs
from zstore_tune.lossy import FLOATS, errors_of, round_bits, to_integers
from zstore_tune.sample import Lengths, Sample, take_sample

__all__ = ["ACCESSES", "Choice", "Tuning", "front", "tune"]

ACCESSES = ("whole", "windows", "series", "tiles", "training")
SAMPLE_SIZE = 32 << 20
WINDOW = 256
WINDOW_COUNT, SERIES_COUNT = 32, 48
STRETCH = 1 << 16
BATCH = 8
# How often writing and reading are timed, unless the first round takes more seconds than SLOW.
WRITES, READS, SLOW = 2, 3, 0.5
UNCHECKED = (
    "choices marked 'no checksum' can read a changed byte as another value; checksum=True beside their "
    "options adds a CRC-32C of 4 bytes to every chunk, and a changed byte is an error"
)
BITSHUFFLED = {"name": "blosc", "configuration": {"cname": "zstd", "shuffle": "bitshuffle"}}
# Choices whose measures differ by less than this factor count as equal.
NOISE = 1.04
# How many codecs are tried with all shapes, how many are tried before rounding, and the time for codecs.
MOST_CODECS = 4
USUAL_CODECS = 5
CODECS_SHARE = 0.4
# Exponents of size, write time and read time in the measure of "balanced": reading twice as fast is worth a
# sixth more bytes, writing twice as fast half of that.
WEIGHTS = (4.0, 0.5, 1.0)


@dataclass(frozen=True)
class Choice:
    """A way to store the array, and what was measured of it on the sample.

    options       arguments of `zstore.create_array`, beside shape and dtype
    size          bytes stored
    object_count  values in the store
    write_time    seconds
    read_times    seconds, by access
    error         (largest, RMS) difference to the sample's items; None: items come back unchanged
    rounding      the rounding in words; "" where there is none
    items         the data type in the line of code: "dtype", or of Python objects "str" or "bytes"
    label         "now": as the array is stored; "default": as `create_array` stores it; "balanced": the one
                  of the front that is good at all three
    is_best       whether it is on the front: no other choice is smaller, faster to write and faster to read
    has_checksum  whether a changed byte of a chunk is an error; `checksum=True` makes it one
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
    has_checksum: bool = True

    @property
    def read_time(self) -> float:
        """The geometric mean of the seconds of all accesses."""
        return float(np.exp(np.mean(np.log([max(t, 1e-9) for t in self.read_times.values()]))))

    @property
    def code(self) -> str:
        """The line of code that makes such an array."""
        said = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"zstore.create_array(store, shape=shape, dtype={self.items}{said})"


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`.

    where       where the array is
    sample      the shape of the sample; `sample_size` is the bytes of its items
    choices     all choices that were measured, the smallest first
    read_sizes  bytes of items that each access reads
    untried     for how many choices there was no time
    notes       what to keep in mind when reading the results
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
        """The choices that no other choice beats in size, writing and reading at once."""
        return tuple(choice for choice in self.choices if choice.is_best)

    def speeds(self, choice: Choice) -> dict[str, float]:
        """MB of items per second, for "write" and for each access."""
        read = {name: self.read_sizes[name] / taken / 1e6 for name, taken in choice.read_times.items()}
        return {"write": self.sample_size / choice.write_time / 1e6, **read}

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, for JSON."""
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
                    "has_checksum": choice.has_checksum,
                    "code": choice.code,
                }
                for choice in self.choices
            ],
            "untried": self.untried,
            "notes": self.notes,
        }


@long_call(
    **READS_ONLY,
    executor="it measures this machine",
    resume="what was measured before says nothing of now",
)
def tune(
    source: Any,
    *,
    array: str | None = None,
    access: Iterable[str] | None = None,
    sample: Lengths | None = None,
    crop: Lengths | None = None,
    lossy: bool = False,
    seconds: float = 60.0,
    zarr_format: int = 3,
    scratch: str | Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **words: Unpack[HowWords],
) -> Tuning:
    """How an array is stored best: codecs, chunks and shards, measured on a sample of it.

    source    an array or a group, its path or URL, a .npy file, or a numpy array; nothing but the chunks of
              the sample is read
    array     which array of a group; None: the one with the most data
    access    how it will be read, one or more of "whole", "windows" (256 × 256 anywhere, of the last two
              dimensions), "tiles" (windows on a grid of 256 × 256), "series" (all times at one place) and
              "training" (an epoch of shuffled batches); None: training where there is a sample or a crop,
              otherwise the whole and windows, and series where there are three dimensions or more
    sample    for training: the number of items of a sample along dimensions, by name or number, as in
              `zstore.batches`
    crop      the same, at random positions
    lossy     also measure rounding of floats, and the error that it makes
    seconds   time after which nothing more is tried; what was measured by then is the result
    scratch   a directory for the stored samples; None: the system's temporary directory

    A quarter of `memory` is the sample: 32 MiB, unless another is asked for. With `dry_run` it is read and
    nothing is measured: the estimate is of all choices, however little time there is.

    Reads come from the system's page cache, so they measure decoding and assembling. On a slower disk or in a
    bucket, smaller choices and those with fewer objects gain.

    Raises
        NotFoundError: there is no such array.
        MetadataError: the array has no items, or an argument is wrong.
        UnsupportedError: items of this kind, or a file of this kind, cannot be measured.
    """
    how = How(**words)
    memory = 4 * SAMPLE_SIZE if how.memory is None else how.memory
    if access is None and (sample or crop):
        access = "training"
    accesses = _check(access, memory, seconds, zarr_format)
    if accesses is not None and ("training" in accesses) != bool(sample or crop):
        raise MetadataError(
            f"sample is {sample!r} and crop {crop!r}; expected one of them for training, and none otherwise"
        )
    end = time.monotonic() + seconds
    taken = take_sample(
        source, array, memory // 4, accesses or ACCESSES, sample or {}, crop or {}, storage_options
    )
    if accesses is None:
        accesses = ("whole", "windows", "series") if taken.values.ndim > 2 else ("whole", "windows")
    how.stop_if_dry(lambda: _estimate(taken, lossy, zarr_format, memory))
    notes = list(taken.notes)
    reads = {name: _plan_reads(name, taken) for name in accesses}
    read_sizes = {name: _read_size(name, taken) for name in accesses}
    with tempfile.TemporaryDirectory(dir=scratch, prefix="zstore-tune-") as place:
        trial = _Trial(taken, Path(place), reads, zarr_format, end, how.progress)
        choices = front(_try_all(trial, taken, lossy, zarr_format, notes))
    if not all(choice.has_checksum for choice in choices if choice.is_best):
        notes.append(UNCHECKED)
    return Tuning(
        taken.where,
        taken.shape,
        _name(taken.dtype),
        taken.values.shape,
        taken.size,
        accesses,
        tuple(sorted(choices, key=lambda choice: choice.size)),
        read_sizes,
        trial.untried,
        tuple(notes),
    )


def _estimate(sample: Sample, lossy: bool, zarr_format: int, memory: int) -> Estimate:
    """The estimate of measuring all choices once, in bytes before they are encoded."""
    codecs = len(list(list_codecs(sample, zarr_format)))
    codecs += len(_list_rounding(sample, zarr_format, [])) if lossy else 0
    count = 2 + codecs + 2 * MOST_CODECS * len(list_chunks(sample, item_size_of(sample)))
    return Estimate(
        unit_count=count,
        read_size=sample.size,
        write_size=count * sample.size,
        memory_size=memory,
        scratch_size=count * sample.size,
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
    """The selections of the sample that an access reads, the same for every choice."""
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


Read = Callable[[zstore.Array], None]


def _plan_reads(access: str, sample: Sample) -> Read:
    if access == "training":
        return partial(_train, sample)
    return partial(_read, list(_selections(access, sample)))


def _read_size(access: str, sample: Sample) -> int:
    share = sample.size / sample.values.size
    if access == "training":
        windows = {**sample.windows, **sample.crops}
        lengths = (windows.get(axis, length) for axis, length in enumerate(sample.values.shape))
        return int(share * _batches(zstore.view(sample.values), sample).sample_count * prod(lengths))
    return int(share * sum(np.asarray(sample.values[one]).size for one in _selections(access, sample)))


def _batches(source: Any, sample: Sample) -> Any:
    """An epoch of shuffled batches, with memory for half of the sample."""
    return zstore.batches(
        source, sample=sample.windows, crop=sample.crops, memory=max(1, sample.size // 2), batch_size=BATCH
    )


def _train(sample: Sample, array: zstore.Array) -> None:
    for _ in _batches(array, sample):
        pass


class _Trial:
    """Stores the sample, reads it, and measures how long that takes."""

    def __init__(
        self,
        sample: Sample,
        place: Path,
        reads: Mapping[str, Read],
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
        """Announce `count` more choices, which may take a share of the time that is left."""
        self._planned += count
        now = time.monotonic()
        self._until = now + share * max(0.0, self._end - now)

    def measure(
        self, options: Options, label: str = "", rounding: str = "", *, always: bool = False
    ) -> Choice | None:
        """A choice with these options; None where the time is up or the sample cannot be stored so."""
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

        def create() -> zstore.Array:
            return zstore.create_array(place, shape=values.shape, dtype=dtype, overwrite=True, **options)

        try:
            write_time = _fastest(WRITES, create, lambda array: array.__setitem__(..., values))
        except (ZstoreError, ImportError, TypeError, ValueError):
            # Not every codec takes every data type, and not all chunks divide all shards.
            return None
        store = LocalStore(place, read_only=True)
        entries = [entry for entry in store.entries("") if not _is_document(entry.key)]
        # Opened anew for each round, so that no decoded chunks are kept from the last one.
        read_times = {
            name: _fastest(READS, lambda: zstore.open_array(place, mode="r"), read)
            for name, read in self._reads.items()
        }
        array = zstore.open_array(place, mode="r")
        back = array[...]
        error = None
        if rounding:
            error = errors_of(values, back)
            if error is None:
                return None
        elif not _is_same(values, back):
            raise UnsupportedError(f"items do not come back through {options!r}", path=self.sample.where)
        if self._format == 3:  # the default of `create_array`
            del options["zarr_format"]
        size = sum(entry.size for entry in entries)
        items = _name(dtype) if isinstance(dtype, type) else "dtype"
        return Choice(
            options,
            size,
            len(entries),
            write_time,
            read_times,
            error,
            rounding,
            items,
            has_checksum=array.has_checksum,
        )


def _fastest(rounds: int, make: Callable[[], zstore.Array], act: Callable[[zstore.Array], None]) -> float:
    """The seconds of the fastest of some rounds of `act`, each on a new array; a slow round is the last."""
    best = np.inf
    for _ in range(rounds):
        array = make()
        begin = time.perf_counter()
        act(array)
        best = min(best, time.perf_counter() - begin)
        if best > SLOW:
            break
    return best


def _read(selections: Sequence[Any], array: zstore.Array) -> None:
    for selection in selections:
        array[selection]


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


def _try_all(trial: _Trial, sample: Sample, lossy: bool, zarr_format: int, notes: list[str]) -> list[Choice]:
    """All choices: codecs on chunks of the default shape, then the best codecs on all shapes and shards."""
    item_size = item_size_of(sample)
    codecs = [(options, "") for options in list_codecs(sample, zarr_format)]
    if lossy:
        # Before codecs that take long and are seldom best.
        codecs[USUAL_CODECS:USUAL_CODECS] = _list_rounding(sample, zarr_format, notes)
    shapes = list_chunks(sample, item_size)
    trial.plan(len(codecs) + 2, CODECS_SHARE)
    found = [trial.measure({"compressors": "zstd"}, "default", always=True)]
    if sample.now is not None and sample.now["zarr_format"] != zarr_format:
        notes.append(f"the array is Zarr v{sample.now['zarr_format']}; the choices are v{zarr_format}")
    elif sample.now is not None:
        found.append(trial.measure(_fit(sample.now, sample.values.shape), "now", always=True))
    if found[0] is None:
        raise UnsupportedError(
            f"items of data type {_name(sample.dtype)} cannot be stored", path=sample.where
        )
    first = [trial.measure(options, "", rounding) for options, rounding in codecs]
    chosen = _spread([choice for choice in (found[0], *first) if choice is not None])
    rest = []
    trial.plan(2 * len(chosen) * len(shapes), 1.0)
    for shape in shapes:
        shards = None
        if zarr_format == 3:
            shards = choose_shards(shape, sample.values.shape, item_size)
        for cut in ({"chunks": shape}, {"chunks": shape, "shards": shards})[: 1 + (shards is not None)]:
            for choice in chosen:
                options = {**cut, **{k: v for k, v in choice.options.items() if k != "zarr_format"}}
                rest.append(trial.measure(options, "", choice.rounding))
    labelled = {repr(choice.options) for choice in found if choice is not None}
    others = [c for c in (*first, *rest) if c is not None and repr(c.options) not in labelled]
    return [*(choice for choice in found if choice is not None), *others]


def _fit(now: Mapping[str, Any], box: Sequence[int]) -> Options:
    """The arguments that describe how the array is stored, with chunks and shards cut to the sample."""
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
    """Whether the choice `by` is worse in nothing, and better in something by more than noise."""
    if by.error is not None and (choice.error is None or by.error[1] > choice.error[1]):
        return False  # a choice that loses more is no substitute
    pairs = list(zip(_measures(choice), _measures(by), strict=True))
    return all(b <= a for a, b in pairs) and any(b * NOISE < a for a, b in pairs)


def _weigh(choice: Choice) -> float:
    pairs = zip(_measures(choice), WEIGHTS, strict=True)
    return float(np.prod([max(measure, 1e-9) ** weight for measure, weight in pairs]))


def _spread(choices: Sequence[Choice]) -> list[Choice]:
    """The balanced choice, the smallest, the fastest to write and to read, and the smallest lossy one."""
    exact = [choice for choice in choices if choice.error is None]
    best = [c for c in exact if not any(_is_beaten(c, other) for other in exact)]
    picked = [min(best, key=_weigh), *(min(best, key=lambda c, n=n: _measures(c)[n]) for n in range(3))]
    picked += sorted((c for c in choices if c.error is not None), key=lambda c: c.size)[:1]
    unique = {repr(choice.options): choice for choice in picked}
    return list(unique.values())[: MOST_CODECS + 1]


def front(choices: Sequence[Choice]) -> list[Choice]:
    """The choices with `is_best` set, and the label "balanced" on the one that is good at everything."""
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
