"""A bundle: a remote in one file, for machines without a network. An OCI image layout as a tar.

    oci-layout              {"imageLayoutVersion":"1.0.0"}
    blobs/sha256/<64 hex>   blobs, named by their own digest
    index.json              what is in it

Reading takes nothing but regular files of exactly these names. Links, devices, sparse files,
absolute paths, ``..``, repeated and unknown names are refused before anything else is looked at,
and nothing is ever unpacked: blobs are read in place.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from kvg import codec as kvz
from kvg import durable
from kvg.digest import PREFIX, Digest, hex_of, is_digest, sha256, short
from kvg.errors import Corrupt, NotFound, RemoteFailed, UsageError
from kvg.frozen import frozen
from kvg.remote import layout, oci
from kvg.remote.files import PIECE_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.digest import Buffer
    from kvg.remote.layout import Expected, Pointer
    from kvg.remote.oci import Descriptor, Image

LAYOUT_FILE: Final = "oci-layout"
LAYOUT_BYTES: Final = b'{"imageLayoutVersion":"1.0.0"}'
INDEX_FILE: Final = "index.json"
BLOBS: Final = "blobs/sha256/"
FOLDERS: Final = ("blobs", "blobs/sha256")
BLOCK: Final = 512
MAX_MEMBERS: Final = 10_000_000
_WRAPPED: Final = (oci.MANIFEST, oci.ENVELOPE)
"""Blobs that hold an object's raw bytes instead of its stored form."""


@frozen
class Span:
    """Where a blob lies in the file."""

    start: int
    size: int


class Bundle:
    """See ``Remote``: one that can only be read. Opened and looked through when it is made."""

    is_writable = False
    keeps_folders = False
    puts_in_turn = False

    def __init__(self, path: Path) -> None:
        """Raises ``NotFound``, ``UsageError`` for a folder, a pipe or a device, and ``Corrupt``
        naming what is wrong with the file."""
        self._path = path
        with durable.translated(path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise UsageError(f"{path}: not a plain file", hint="a bundle is one file")
            self._spans = _members(path, os.fstat(self._fd).st_size)
            self._read_documents()
        except BaseException:
            os.close(self._fd)
            raise

    def _read_documents(self) -> None:
        if self._whole(LAYOUT_FILE, 1 << 12).replace(b" ", b"").strip() != LAYOUT_BYTES:
            raise Corrupt(f"{self._path}: {LAYOUT_FILE}: not an OCI image layout of version 1.0.0")
        what = f"{self._path}: {INDEX_FILE}"
        data = self._whole(INDEX_FILE, oci.MAX_DOCUMENT_BYTES)
        self._pointers: dict[str, Pointer] = {}
        self._artifacts: dict[str, Descriptor] = {}
        self._objects: dict[Digest, tuple[Descriptor, bool]] = {}
        self._logs: dict[str, dict[str, Descriptor]] = {}
        self._offers: dict[str, str] = {}
        self.has_pages = True
        self._named: dict[Digest, tuple[int, str]] = {}
        """What its index and images name: the size that they say, and what kind of blob it is."""
        for item in oci.parse_index(data, what=what):
            image = self.image(item)
            self._name(item, *image.layers, image.config)
            self._take(item, image, what)

    def _name(self, *items: Descriptor) -> None:
        self._named.update((item.digest, (item.size, item.media_type)) for item in items)

    def _take(self, item: Descriptor, image: Image, what: str) -> None:
        if image.artifact_type == oci.ARTIFACT:
            self._add(image.config, image.config.digest, is_raw=True)
            name = item.said(oci.REF)
            if name is not None:
                layout.check_name(name, what=what)
                self._pointers[name] = _pointer(item, what)
                self._artifacts[name] = image.config
            self.has_pages = self.has_pages and item.said(oci.PAGES) != "none"
        elif image.artifact_type == oci.LOG:
            origin = item.said(oci.ORIGIN) or ""
            if not layout.is_origin(origin):
                raise Corrupt(f"{what}: {origin[:80]!r} is no log")
            self._logs[origin] = {layer.said(oci.TITLE) or "": layer for layer in image.layers}
            return
        elif image.artifact_type == oci.KEYS:
            self._take_keys(image)
            return
        for layer in image.layers:
            if layer.raw is not None:
                self._add(layer, layer.raw, is_raw=layer.media_type in _WRAPPED)

    def _add(self, layer: Descriptor, raw: Digest, *, is_raw: bool) -> None:
        if is_raw and layer.digest != raw:
            raise Corrupt(f"{self._path}: blob {short(layer.digest)} is not object {short(raw)}")
        self._objects[raw] = (layer, is_raw)

    def _take_keys(self, image: Image) -> None:
        layout.check_keys(len(image.layers), what=str(self._path))
        for layer in image.layers:
            keyid, _, kind = (layer.said(oci.TITLE) or "").rpartition(".")
            data = self.blob(layer, layout.MAX_KEY_BYTES)
            if kind == "pub" and data.isascii():
                self._offers[keyid] = data.decode("ascii")

    @property
    def url(self) -> str:
        return str(self._path)

    @property
    def artifacts(self) -> Mapping[str, Digest]:
        """What it says that each ref stands for; a pointer proves it."""
        return {name: config.digest for name, config in self._artifacts.items()}

    @property
    def blobs(self) -> tuple[Digest, ...]:
        """Every blob that is there, ascending."""
        found = (name.removeprefix(BLOBS) for name in self._spans if name.startswith(BLOBS))
        return tuple(Digest(PREFIX + digits) for digits in sorted(found))

    @property
    def absent(self) -> Mapping[Digest, str]:
        """Blobs that its images name, and that are not there or of another size, by their kind."""
        return {
            digest: kind
            for digest, (size, kind) in self._named.items()
            if (span := self._spans.get(BLOBS + hex_of(digest))) is None or span.size != size
        }

    @property
    def unnamed(self) -> tuple[Digest, ...]:
        """Blobs that nothing in it names, ascending."""
        return tuple(digest for digest in self.blobs if digest not in self._named)

    def blob_is_good(self, digest: Digest) -> bool:
        """Whether the bytes of a blob have the digest that it is named by."""
        from kvg.digest import Sha256Stream

        span, stream = self._spans[BLOBS + hex_of(digest)], Sha256Stream()
        for piece in self._pieces(span, 0, span.size):
            stream.update(piece)
        return stream.digest() == digest

    def image(self, item: Descriptor) -> Image:
        """The image manifest that ``item`` points at. Raises ``Corrupt``."""
        what = f"{self._path}: {short(item.digest)}"
        return oci.parse_image(self.blob(item, oci.MAX_DOCUMENT_BYTES), what=what)

    def blob(self, item: Descriptor, limit: int) -> bytes:
        """A whole blob, its digest checked. Raises ``Corrupt``."""
        data = self._whole(BLOBS + hex_of(item.digest), limit)
        if sha256(data) != item.digest or len(data) != item.size:
            raise Corrupt(f"{self._path}: blob {short(item.digest)} is damaged")
        return data

    def check_ref(self, name: str) -> None:
        raise self._read_only()

    def check(self) -> None:
        return None

    def store_log(self) -> None:
        return None

    def make(self) -> None:
        raise self._read_only()

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return frozenset(digest for digest in digests if self._span(digest) is None)

    def _span(self, digest: Digest) -> Span | None:
        found = self._objects.get(digest)
        return None if found is None else self._spans.get(BLOBS + hex_of(found[0].digest))

    def get(self, digest: Digest, *, start: int = 0, limit: int) -> Iterator[bytes]:
        span = self._span(digest)
        if span is None:
            raise NotFound(f"{self._path}: object {short(digest)}: not in it")
        layer, is_raw = self._objects[digest]
        if not is_raw:
            yield from self._pieces(span, start, limit)
            return
        raw = self.blob(layer, oci.MAX_DOCUMENT_BYTES)
        stored = b"".join(kvz.encode(raw, digest=digest, codec=kvz.ZSTD).parts())
        stop = min(len(stored), start + limit)
        for at in range(start, stop, PIECE_BYTES):
            yield stored[at : min(at + PIECE_BYTES, stop)]

    def put(self, digest: Digest, parts: Iterable[Buffer]) -> None:
        raise self._read_only()

    def origins(self) -> tuple[str, ...]:
        return tuple(sorted(self._logs))

    def log(self, origin: str) -> BundleLog:
        if not layout.is_origin(origin):
            raise Corrupt(f"{self._path}: {origin[:80]!r} is no log")
        return BundleLog(self, self._logs.get(origin, {}), origin)

    def refs(self) -> tuple[str, ...]:
        return tuple(sorted(self._pointers))

    def pointer(self, name: str) -> Pointer | None:
        layout.check_name(name, what=self.url)
        return self._pointers.get(name)

    def pointers(self, names: Sequence[str]) -> Mapping[str, Pointer | Corrupt | None]:
        return {name: self.pointer(name) for name in names}

    def move(
        self,
        name: str,
        pointer: Pointer | None,
        *,
        expect: Expected,
        value: Digest | None = None,
    ) -> None:
        raise self._read_only()

    def offers(self) -> Mapping[str, str]:
        return dict(self._offers)

    def offer(self, keyid: str, text: str) -> None:
        raise self._read_only()

    def announce(self, origin: str) -> None:
        raise self._read_only()

    def renew(self, origin: str) -> None:
        raise self._read_only()

    def withdraw(self, origin: str) -> None:
        raise self._read_only()

    def publish_listing(self) -> None:
        raise self._read_only()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _whole(self, name: str, limit: int) -> bytes:
        span = self._spans.get(name)
        if span is None:
            raise Corrupt(f"{self._path}: {name} is missing", hint=CUT_HINT)
        if span.size > limit:
            raise Corrupt(f"{self._path}: {name} is too large: {span.size} bytes")
        return b"".join(self._pieces(span, 0, span.size))

    def _pieces(self, span: Span, start: int, limit: int) -> Iterator[bytes]:
        position, stop = start, min(span.size, start + limit)
        while position < stop:
            with durable.translated(self._path):
                n_bytes = min(PIECE_BYTES, stop - position)
                piece = os.pread(self._fd, n_bytes, span.start + position)
            if not piece:
                raise Corrupt(f"{self._path}: became shorter while it was read")
            position += len(piece)
            yield piece

    def _read_only(self) -> RemoteFailed:
        return RemoteFailed(f"{self._path}: a bundle can only be read", hint="kvg bundle create")


class BundleLog:
    """See ``LogFiles``."""

    def __init__(self, bundle: Bundle, files: Mapping[str, Descriptor], origin: str) -> None:
        self._bundle = bundle
        self._files = files
        self._origin = origin

    def read(self, name: str, limit: int) -> bytes | None:
        layout.check_name(f"{layout.LOGS}/{self._origin}/{name}", what=self._bundle.url)
        found = self._files.get(name)
        if found is None:
            return None
        return self._bundle.blob(found, oci.MAX_DOCUMENT_BYTES)[: limit + 1]

    def widths(self, name: str) -> Sequence[int]:
        prefix = f"{name}.p/"
        found = (key.removeprefix(prefix) for key in self._files if key.startswith(prefix))
        return sorted(int(text) for text in found if text.isascii() and text.isdigit())

    def write(self, name: str, data: bytes) -> None:
        raise RemoteFailed(f"{self._bundle.url}: a bundle can only be read")

    def swap(self, name: str, data: bytes, *, expect: bytes | None) -> None:
        raise RemoteFailed(f"{self._bundle.url}: a bundle can only be read")

    def __repr__(self) -> str:
        return f"{self._bundle.url}: log {self._origin}"


def encode_member(name: str, size: int) -> bytes:
    """The header of a regular file of ``size`` bytes: the same for the same, everywhere."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    return info.tobuf(format=tarfile.PAX_FORMAT)


def padding(size: int) -> bytes:
    """What follows ``size`` bytes of a member."""
    return bytes(-size % BLOCK)


END: Final = bytes(2 * BLOCK)
"""What ends a tar."""

MAX_HEADER_BYTES: Final = 1 << 16
"""What is read of a tar at once; none of kvg's own has headers longer than a block."""

MAX_END_BYTES: Final = 1 << 20
"""Tools fill up to a whole record, of twenty blocks as a rule."""

CUT_HINT: Final = "copy it again, whole"


class _Headers:
    """A file of which a tar's headers are read, each a few hundred bytes: what comes with one that
    says it goes on for gigabytes would be read into memory at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Raises ``TarError`` for more than any name takes."""
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.TarError("a header that goes on and on")
        return self._file.read(size)


def _members(path: Path, file_size: int) -> dict[str, Span]:
    """Where each member lies. Raises ``Corrupt`` on any that has no business there."""
    spans: dict[str, Span] = {}
    end = 0
    try:
        with (
            open(path, "rb", opener=durable.plain) as file,
            tarfile.open(fileobj=cast(BinaryIO, _Headers(file)), mode="r:") as tar,
        ):
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # each takes a kilobyte
                _check_member(member, path)
                end = member.offset_data + member.size + -member.size % BLOCK
                if member.isdir():
                    continue
                if member.name in spans or len(spans) >= MAX_MEMBERS:
                    raise Corrupt(f"{path}: {member.name} is there twice")
                if member.offset_data + member.size > file_size:
                    raise Corrupt(f"{path}: cut short in {member.name}")
                spans[member.name] = Span(member.offset_data, member.size)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise Corrupt(f"{path}: not a bundle: {str(error).lower()}") from None
    except OSError as error:
        durable.raise_translated(error, path)
    _check_end(path, end, file_size)
    _check_paddings(path, spans)
    return spans


def _check_paddings(path: Path, spans: Mapping[str, Span]) -> None:
    """Members are filled up to whole blocks with zeros: nothing else can ride along there."""
    with durable.translated(path), open(path, "rb", buffering=0, opener=durable.plain) as file:
        for name, span in spans.items():
            wanted = padding(span.size)
            if wanted and os.pread(file.fileno(), len(wanted), span.start + span.size) != wanted:
                raise Corrupt(
                    f"{path}: what fills up {name} is not zero",
                    hint="nothing of it was unpacked; make it anew with kvg bundle create",
                )


def _check_end(path: Path, end: int, file_size: int) -> None:
    """Nothing but the blocks of zeros that end a tar may follow its members."""
    size = file_size - end
    if size < len(END):
        raise Corrupt(f"{path}: cut short: the end of the archive is missing", hint=CUT_HINT)
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        file.seek(end)
        if size > MAX_END_BYTES or file.read(size).count(0) != size:
            raise Corrupt(
                f"{path}: something follows the end of the archive, at byte {end}",
                hint="nothing of it was unpacked; make it anew with kvg bundle create",
            )


def _check_member(member: tarfile.TarInfo, path: Path) -> None:
    name = member.name
    if member.type == tarfile.DIRTYPE and name in FOLDERS:
        return
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.sparse
    is_known = name in (LAYOUT_FILE, INDEX_FILE) or (
        name.startswith(BLOBS) and is_digest(PREFIX + name.removeprefix(BLOBS))
    )
    if not is_file or not is_known:
        kind = "a link" if member.issym() or member.islnk() else "no file of a bundle"
        raise Corrupt(f"{path}: {name[:80]!r} is {kind}", hint="nothing of it was unpacked")


def _pointer(item: Descriptor, what: str) -> Pointer:
    origin, digits = item.said(oci.ORIGIN) or "", item.said(oci.POSITION) or ""
    if not layout.is_origin(origin) or not (digits.isascii() and digits.isdigit()):
        raise Corrupt(f"{what}: a ref without a pointer")
    if len(digits) > 16:
        raise Corrupt(f"{what}: a pointer past the end of any log")
    return layout.Pointer(origin, int(digits))
