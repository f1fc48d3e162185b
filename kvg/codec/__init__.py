"""How objects are stored (KVZ1): the only home of ``zstandard``."""

from __future__ import annotations

from kvg.codec.checking import Checked, RawCheck, check_raw, checked_pieces
from kvg.codec.header import (
    ALIGNMENT,
    FRAME_SIZE,
    PLANES,
    PREFIX_SIZE,
    RAW,
    ZSTD,
    Frame,
    Header,
    header_size,
    parse_header,
    parse_header_size,
)
from kvg.codec.planes import Join, Split, Target, join_in_turn, join_planes, split_planes
from kvg.codec.reading import PieceReader, open_pieces
from kvg.codec.stored import DEFAULT_LIMIT, Stored, check_padding, decode, encode

__all__ = (
    "ALIGNMENT",
    "DEFAULT_LIMIT",
    "FRAME_SIZE",
    "PLANES",
    "PREFIX_SIZE",
    "RAW",
    "ZSTD",
    "Checked",
    "Frame",
    "Header",
    "Join",
    "PieceReader",
    "RawCheck",
    "Split",
    "Stored",
    "Target",
    "check_padding",
    "check_raw",
    "checked_pieces",
    "decode",
    "encode",
    "header_size",
    "join_in_turn",
    "join_planes",
    "open_pieces",
    "parse_header",
    "parse_header_size",
    "split_planes",
)
