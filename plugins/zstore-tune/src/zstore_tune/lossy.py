"""Rounding of floats, to the bits that hold information or to integers, and the error that it makes."""

from __future__ import annotations

from typing import Any

import numpy as np

# For each type of floats: the unsigned integers of its size, and its bits, in all and of the mantissa.
FLOATS = {"f2": ("u2", 16, 10), "f4": ("u4", 32, 23), "f8": ("u8", 64, 52)}
# The most pairs of neighbours that are compared; more do not change the result.
MOST_PAIRS = 1 << 20
# Information counts only where it exceeds what chance gives in 99 of 100 samples.
QUANTILE = 2.5758
# How far the range of integers reaches beyond the sample's range on each side, as a share of that range.
BEYOND = 0.5


def count_bits(values: np.ndarray, share: float) -> int | None:
    """How many bits of the mantissa hold `share` of the information; None where there is no information.

    The information of a bit is what it tells about the same bit of the next item in its row.

    Spec
        Klöwer et al. (2021), "Compressing atmospheric data into its real information content".
    """
    unsigned, width, mantissa = FLOATS[values.dtype.str[1:]]
    if values.shape[-1] < 2:
        return None
    left, right = (values[..., cut].ravel() for cut in (slice(None, -1), slice(1, None)))
    if left.size > MOST_PAIRS:
        # The first pairs will do: neighbours are paired already.
        left, right = left[:MOST_PAIRS], right[:MOST_PAIRS]
    real = np.isfinite(left) & np.isfinite(right)
    if real.sum() < 64:
        return None
    plain = values.dtype.newbyteorder("=")
    a, b = (part[real].astype(plain).view(unsigned) for part in (left, right))
    chance = 0.5 + QUANTILE / (2 * np.sqrt(a.size))
    free = 1 - _entropy(np.array([chance, 1 - chance]))
    information = np.zeros(width)
    for bit in range(width):
        shift = np.array(width - 1 - bit, dtype=unsigned)
        first, second = (a >> shift) & 1, (b >> shift) & 1
        joint = np.bincount((first * 2 + second).astype(np.intp), minlength=4).reshape(2, 2) / a.size
        found = _entropy(joint.sum(0)) + _entropy(joint.sum(1)) - _entropy(joint.ravel())
        information[bit] = found if found > free else 0.0
    total = information.sum()
    if total <= 0:
        return None
    reached = int(np.searchsorted(np.cumsum(information) / total, share - 1e-12)) + 1
    return min(mantissa, max(1, reached - (width - mantissa)))


def _entropy(shares: np.ndarray) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log2(some)).sum())


def round_bits(values: np.ndarray) -> list[tuple[str, dict[str, Any]]]:
    """Options of `create_array` that round floats to the bits that hold 99 and 99.9 % of the information."""
    found = {count_bits(values, share): share for share in (0.999, 0.99)}
    mantissa = FLOATS[values.dtype.str[1:]][2]
    return [
        (
            f"{share:.1%} of the information",
            {"filters": [{"name": "bitround", "configuration": {"keepbits": bits}}]},
        )
        for bits, share in found.items()
        if bits is not None and bits < mantissa
    ]


def to_integers(values: np.ndarray) -> list[tuple[str, dict[str, Any]]]:
    """Options of `create_array` that store floats as integers of two bytes and of one.

    The integers' range reaches beyond the sample's by half its length on each side; a value out of it is
    refused when it is written.
    """
    real = values[np.isfinite(values)].astype(np.float64)
    if not real.size or real.size < (~np.isnan(values)).sum() or real.min() == real.max():
        return []
    low, high = float(real.min()), float(real.max())
    low, high = low - BEYOND * (high - low), high + BEYOND * (high - low)
    made = []
    for name in ("uint16", "uint8"):
        largest = int(np.iinfo(name).max)
        # The largest integer stands for NaN; the one below it is left free for the rounding of `high`.
        scale = (largest - 2) / (high - low)
        nothing = [["NaN", largest]], [[largest, "NaN"]]
        cast = {
            "data_type": name,
            "rounding": "nearest-even",
            "scalar_map": {"encode": nothing[0], "decode": nothing[1]},
        }
        filters = [
            {"name": "scale_offset", "configuration": {"offset": low, "scale": scale}},
            {"name": "cast_value", "configuration": cast},
        ]
        options = {"filters": filters, "fill_value": "NaN"}
        made.append((f"{name}, {low:.6g} to {high:.6g}", options))
    return made


def errors_of(values: np.ndarray, stored: np.ndarray) -> tuple[float, float] | None:
    """(largest, RMS) difference of the finite items; None where other items have changed too."""
    real = np.isfinite(values)
    if not np.array_equal(values[~real], stored[~real], equal_nan=True):
        return None
    if not real.any():
        return 0.0, 0.0
    off = stored[real].astype(np.float64) - values[real].astype(np.float64)
    if not np.isfinite(off).all():
        return None
    return float(np.abs(off).max()), float(np.sqrt(np.mean(off**2)))
