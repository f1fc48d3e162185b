"""Linear layers in row tiles of a fixed menu: K is walked the same way for every row."""

from kvg_kernels.linear.cpu import SMALL_TILE, TILES, linear
from kvg_kernels.linear.reference import linear_reference

__all__ = ["SMALL_TILE", "TILES", "linear", "linear_reference"]
