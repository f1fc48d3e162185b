"""What is done to pages, other objects and their stored form."""

from __future__ import annotations

import struct

import zstandard
from blake3 import blake3

from kvg import codec
from kvg.errors import Corrupt, Incompatible
from kvg.log.entry import AttestationEntry
from kvg.objects.manifest import LayerSpec, encode_manifest, group_layers
from tests import artifacts as a
from tests.trust.attacks.world import World, refused


@refused(Corrupt)
def two_pages_are_swapped(w: World) -> None:
    one, two = (w.path(page.digest) for page in w.made.manifest.pages[:2])
    first, second = one.read_bytes(), two.read_bytes()
    w.overwrite(one, second)
    w.overwrite(two, first)
    w.graft()


@refused(Corrupt)
def a_page_holds_the_page_of_another_artifact(w: World) -> None:
    raw = bytes(w.store.objects.read(w.other.manifest.pages[0].digest, what="it"))
    w.put_under(w.made.manifest.pages[0].digest, raw)
    w.graft()


@refused(Corrupt)
def a_manifest_is_used_as_a_page(w: World) -> None:
    w.put_under(w.made.manifest.pages[0].digest, encode_manifest(w.made.manifest))
    w.graft()


@refused(Corrupt)
def a_page_is_used_as_a_manifest(w: World) -> None:
    page = w.made.manifest.pages[0].digest
    w.store.publish([AttestationEntry(a.NOW, page, w.made.envelopes[0])])
    w.graft(page)


@refused(Corrupt)
def one_bit_of_a_page_is_flipped(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def a_page_is_cut_short(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    w.overwrite(path, path.read_bytes()[:-1])
    w.graft()


@refused(Corrupt)
def the_token_ids_are_those_of_another_artifact(w: World) -> None:
    raw = bytes(w.store.objects.read(w.other.manifest.tokens.digest, what="it"))
    w.put_under(w.made.manifest.tokens.digest, raw)
    w.graft()


@refused(Corrupt)
def a_page_is_missing(w: World) -> None:
    w.path(w.made.manifest.pages[0].digest).unlink()
    w.graft()


def capture(value: float, dtype: str) -> None:
    """Take a page from a state that holds ``value`` once."""
    import torch

    from kvg.model.state import SlotState, capture_page

    spec = LayerSpec(0, "attention", 1, 4, 4, dtype, None)
    state = SlotState((spec,), torch.device("cpu"), 4)
    state.values[0][0, 2, 3] = value
    (group,) = group_layers((spec,))
    capture_page(state, group, 0, 4, what="page")


@refused(Corrupt)
def a_payload_holds_nan(w: World) -> None:
    capture(float("nan"), "BF16")


@refused(Corrupt)
def a_payload_holds_infinity(w: World) -> None:
    capture(float("-inf"), "F32")


# The stored form.


def forged(w: World, offset: int, form: str, value: int) -> None:
    """One field of a page's stored header is a lie, under a header checksum that is right."""
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    (n_frames,) = struct.unpack_from("<I", raw, 20)
    end = 64 + n_frames * (4 + 8 * raw[5] + 32)
    struct.pack_into(form, raw, offset, value)
    raw[end : end + 32] = blake3(bytes(raw[:end])).digest()
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def the_raw_size_is_a_lie(w: World) -> None:
    forged(w, 8, "<Q", 1 << 60)


@refused(Corrupt)
def the_number_of_frames_is_a_lie(w: World) -> None:
    forged(w, 20, "<I", 0xFFFFFFFF)


@refused(Corrupt)
def the_size_of_a_frame_is_a_lie(w: World) -> None:
    forged(w, 64, "<I", 1)


@refused(Corrupt)
def the_place_of_the_data_is_a_lie(w: World) -> None:
    forged(w, 24, "<I", 64)


@refused(Corrupt)
def the_reserved_field_is_used(w: World) -> None:
    forged(w, 28, "<I", 1)


@refused(Incompatible)
def the_codec_is_the_reserved_one(w: World) -> None:
    forged(w, 4, "<B", 3)


@refused(Corrupt)
def the_padding_carries_something(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    (data_offset,) = struct.unpack_from("<I", raw, 24)
    raw[data_offset - 1] = 1
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def something_follows_the_last_frame(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    w.overwrite(path, path.read_bytes() + b"\0")
    w.graft()


def bomb(w: World, n_codec: int, planes: int) -> None:
    """A frame that inflates to 64 MiB where the header says 8 bytes, every checksum right."""
    digest = w.made.manifest.pages[0].digest
    packed = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    head = struct.pack("<4sBBHQIIII", b"KVZ1", n_codec, planes, 0, 8, 8 << 20, 1, 0, 0)
    head += bytes.fromhex(digest.removeprefix("sha256:"))
    head += struct.pack("<I", 8) + struct.pack("<II", len(packed), 1) * planes
    body = packed * planes
    head += blake3(body).digest()
    end = len(head) + 32
    head = head[:24] + struct.pack("<I", end) + head[28:]
    w.overwrite(w.path(digest), head + blake3(head).digest() + body)
    codec.decode(w.path(digest).read_bytes(), digest=digest, size=8, what="bomb")


@refused(Corrupt)
def a_zstd_frame_is_a_bomb(w: World) -> None:
    bomb(w, 1, 1)


@refused(Corrupt)
def a_plane_is_a_bomb(w: World) -> None:
    bomb(w, 2, 2)
