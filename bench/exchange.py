"""How fast stores exchange, against plain tools on the same bytes.

    python bench/exchange.py [--bytes N] [--artifacts N] [--only WORD,…] [--out FILE]

Makes a store with about N bytes (1 GB by default) of pages, pushes it to a folder, over ssh, to S3,
clones it from a web server, and sets beside each what a plain tool needs for the same files:

    directory   cp, then sha256sum by hashlib, of the same bytes
    ssh         rsync without compression, through the same sshd
    S3          rclone copy to the same server (moto, whose own pace decides), and from another
                (rclone serve s3, which can only be read)
    http        rclone copy from the same nginx

Pages are real where ``--pages DIR`` names a store that holds some (``make demo`` leaves one, which
is taken by itself); they are repeated, the first bytes of each varied, so that no two are equal.
Else they are normal values in bf16. Then: a second push of nothing new with many artifacts, and at
half as many (its growth); a push of an artifact that shares half its pages; the memory that a push
and a clone take.

Every figure is the best of ``--runs``; servers that are missing are named and left out. JSON goes
to ``bench/results/exchange.json`` with the machine described.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from bench.pages import PAGE_TOKENS, Pages, deposit, layout  # noqa: E402
from bench.store import grow, write_object  # noqa: E402
from kvg.objects import page as p  # noqa: E402
from kvg.store import Store  # noqa: E402
from tests import artifacts as made  # noqa: E402

PROGRAM = "from kvg.cli.main import run; run()"
Copy = Callable[[str, Callable[[str], Sequence[str | Path]]], None]
RESULTS = ROOT / "bench" / "results" / "exchange.json"


def timed(
    work: Callable[[], object], *, runs: int, before: Callable[[], object] = lambda: None
) -> list[float]:
    """Wall-clock seconds of each of ``runs``."""
    return measured(work, runs=runs, before=before)[0]


def measured(
    work: Callable[[], object], *, runs: int, before: Callable[[], object] = lambda: None
) -> tuple[list[float], float]:
    """Wall-clock seconds of each of ``runs``, and the least processor seconds of one."""
    taken, spent = [], []
    for _ in range(runs):
        before()
        os.sync()  # what earlier steps left to write is not this one's
        began, cpu = time.monotonic(), cpu_seconds()
        work()
        taken.append(round(time.monotonic() - began, 3))
        spent.append(round(cpu_seconds() - cpu, 3))
    return taken, min(spent)


def cpu_seconds() -> float:
    """What this process and its children have taken of processors: a busy machine changes little
    of it. Servers that still run are none of them."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


def hash_all(folder: Path) -> None:
    """Take the SHA-256 of every file, as a reader of kvg's objects does."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")


class Bench:
    """One run of everything, in a folder of its own."""

    def __init__(self, folder: Path, size: int, runs: int, source: Path | None) -> None:
        self.folder, self.runs = folder, runs
        self.results: dict[str, object] = {}
        self.missing: list[str] = []
        self.env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}"}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kvg is compiled once
        for name in ("DATA", "CONFIG", "CACHE"):
            self.env[f"XDG_{name}_HOME"] = str(folder / name.lower())
        self.source = folder / "source"
        self._fill(size, source)

    def _fill(self, size: int, source: Path | None) -> None:
        from kvg.trust import Keyring

        keyring = Keyring(self.folder / "data/kvg/keys")
        key = keyring.new("default")
        store = Store.init(self.source, keyring=keyring)
        store.trust_first(key)
        (group,) = layout().groups
        page_size = p.data_size(group, PAGE_TOKENS)
        pages = Pages(source, page_size)
        n_pages = max(2, size // page_size)
        ids = [5 + n % 40_000 for n in range(n_pages * PAGE_TOKENS)]
        deposit(store, key, "big", ids, pages, 0)
        store.close()
        self.keyid, self.key, self.keyring, self.pages = key.public.keyid, key, keyring, pages
        self.n_pages = n_pages
        self.raw_bytes = n_pages * page_size
        self.results["pages"] = {"kind": pages.kind, "count": n_pages, "bytes": self.raw_bytes}

    def kvg(self, *words: str | Path, env: dict[str, str] | None = None) -> dict[str, object]:
        """Run a command; its last record, with the most memory that it took."""
        argv = [sys.executable, "-c", PROGRAM, "--json", *map(str, words)]
        done = subprocess.run(
            ["/usr/bin/env", *argv],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            capture_output=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"error: kvg {' '.join(map(str, words))}: {done.stderr.decode()}")
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else {}

    def push(self, url: str, codec: int, env: dict[str, str] | None = None) -> dict[str, object]:
        """Push everything to ``url``, as a remote of its own."""
        store = ("-C", self.source)
        name = f"r{len(os.listdir(self.folder))}-{time.monotonic_ns()}"
        self.kvg(*store, "remote", "add", name, url, env=env)
        self.kvg(*store, "remote", "set", name, "--codec", str(codec), env=env)
        os.sync()
        began, cpu = time.monotonic(), cpu_seconds()
        record = self.kvg(*store, "push", name, env=env)
        took, spent = time.monotonic() - began, cpu_seconds() - cpu
        self.kvg(*store, "remote", "remove", name, env=env)
        return {
            "seconds": round(took, 3),
            "cpu_seconds": round(spent, 3),
            "bytes": record["bytes"],
            "objects": record["objects_sent"],
        }

    def note(
        self, name: str, our_runs: list[float], their_runs: list[float], **more: object
    ) -> None:
        """Keep every run, the least of each, and how the two compare."""
        ours, theirs = min(our_runs), min(their_runs)
        self.results[name] = {
            "kvg_seconds": ours,
            "plain_seconds": theirs,
            "ratio": round(theirs / ours, 3),
            **more,
            "kvg_runs": our_runs,
            "plain_runs": their_runs,
        }
        print(
            f"{name:<12} kvg {ours:7.2f} s   plain {theirs:7.2f} s   {theirs / ours:5.2f}x",
            flush=True,
        )

    def objects(self) -> Path:
        return self.source / ".kvg" / "objects"

    def directory(self) -> None:
        copied = self.folder / "copied"

        def plain() -> None:
            subprocess.run(["cp", "-r", str(self.objects()), str(copied)], check=True)
            hash_all(copied)

        def durable() -> None:
            plain()
            subprocess.run(["sync", "-f", str(copied)], check=True)

        def clean() -> None:
            shutil.rmtree(copied, ignore_errors=True)

        theirs, their_cpu = measured(plain, runs=self.runs, before=clean)
        self.results["cp, sha256, sync"] = timed(durable, runs=self.runs, before=clean)
        clean()
        for codec in (0, 2):
            found = []
            for n in range(self.runs):
                share = self.folder / f"share-{codec}-{n}"
                found.append(self.push(str(share), codec))
                if n or codec:
                    shutil.rmtree(share)
            ours = [item["seconds"] for item in found]
            cpu = min(item["cpu_seconds"] for item in found)
            told = {"kvg_cpu_seconds": cpu, "plain_cpu_seconds": their_cpu}
            self.note(f"directory, codec {codec}", ours, theirs, bytes=found[0]["bytes"], **told)

    def ssh(self) -> None:
        from tests.remote.programs import sshd

        with self._server(lambda: sshd(self.folder / "sshd"), "sshd") as server:
            if server is None or shutil.which("rsync") is None:
                self.missing.append("rsync" if server else "sshd")
                return
            shell = server.access.variables["KVG_SSH_COMMAND"] + f" -p {server.port}"
            copied = self.folder / "rsynced"

            def plain(*options: str) -> None:
                argv = ["rsync", "-a", "--no-compress", *options, "-e", shell, f"{self.objects()}/"]
                subprocess.run([*argv, f"127.0.0.1:{copied}/"], check=True)

            def clean() -> None:
                shutil.rmtree(copied, ignore_errors=True)

            theirs = timed(plain, runs=self.runs, before=clean)
            told = subprocess.run(["rsync", "--help"], capture_output=True, check=False, text=True)
            if "--fsync" in told.stdout:
                self.results["rsync, fsync"] = timed(
                    lambda: plain("--fsync"), runs=self.runs, before=clean
                )
            clean()
            for codec in (0, 2):
                found = []
                for n in range(self.runs):
                    share = self.folder / f"far-{codec}-{n}"
                    access = dict(server.access.variables)
                    found.append(self.push(server.url(share), codec, access))
                    shutil.rmtree(share)
                ours = [item["seconds"] for item in found]
                self.note(f"ssh, codec {codec}", ours, theirs, bytes=found[0]["bytes"])

    def s3(self) -> None:
        from tests.remote.programs import need

        try:
            program = need("rclone")
        except BaseException as skipped:  # noqa: BLE001  pytest's skip is no Exception
            self.missing.append(str(skipped))
            return

        def rclone(endpoint: str, words: Callable[[str], Sequence[str | Path]]) -> None:
            """Run it with ``words`` of what a bucket's name goes after."""
            at = f":s3,provider=Other,endpoint='{endpoint}',access_key_id=test"
            at += ",secret_access_key=test-secret,region=us-east-1:"
            subprocess.run([program, "copy", "--config", "/dev/null", *words(at)], check=True)

        self._s3_push(rclone)
        self._s3_clone(rclone)

    def _s3_push(self, rclone: Copy) -> None:
        from tests.remote.programs import moto

        with self._server(lambda: moto(self.folder / "moto"), "moto_server") as server:
            if server is None:
                return
            server.bucket("plain")
            theirs = timed(
                lambda: rclone(server.endpoint, lambda at: [self.objects(), f"{at}plain"]), runs=1
            )
            for codec in (0, 2):
                url = server.bucket(f"kvg{codec}")
                found = self.push(f"{url}/kv", codec, dict(server.access.variables))
                self.note(f"s3, codec {codec}", [found["seconds"]], theirs, bytes=found["bytes"])

    def _s3_clone(self, rclone: Copy) -> None:
        """From a server in front of a folder. It heeds no conditions: it can only be read."""
        from tests.remote.programs import rclone as serve

        folder, fetched, peer = (
            self.folder / name for name in ("s3-read", "s3-fetched", "s3-peer")
        )
        self.push(str(folder / "data/bucket/kv"), 0)
        with self._server(lambda: serve(folder), "obstore") as server:
            if server is None:
                return
            theirs, their_cpu = measured(
                lambda: rclone(server.endpoint, lambda at: [f"{at}bucket/kv", fetched]),
                runs=self.runs,
                before=lambda: shutil.rmtree(fetched, ignore_errors=True),
            )
            shutil.rmtree(fetched)
            env = dict(server.access.variables)
            ours, cpu = measured(
                lambda: self.kvg("clone", "s3://bucket/kv", peer, "--trust", self.keyid, env=env),
                runs=self.runs,
                before=lambda: shutil.rmtree(peer, ignore_errors=True),
            )
            shutil.rmtree(peer)
            told = {"kvg_cpu_seconds": cpu, "plain_cpu_seconds": their_cpu}
            self.note("s3, clone", ours, theirs, **told)
        shutil.rmtree(folder)

    def http(self) -> None:
        from tests.remote.programs import need, nginx

        share = self.folder / "share-0-0"
        if not share.exists():
            self.push(str(share), 0)
        with self._server(lambda: nginx(self.folder / "nginx", share), "nginx") as url:
            if url is None:
                return
            names = [str(path.relative_to(share)) for path in share.rglob("*") if path.is_file()]
            (self.folder / "names").write_text("\n".join(names) + "\n")
            rclone, copied = need("rclone"), self.folder / "fetched"

            def plain() -> None:
                argv = [rclone, "copy", "--config", "/dev/null", "--files-from", "names"]
                argv += ["--no-traverse", f":http,url='{url}':", str(copied)]
                subprocess.run(argv, check=True, cwd=self.folder)

            def durable() -> None:
                plain()
                subprocess.run(["sync", "-f", str(copied)], check=True)

            def checked() -> None:
                plain()
                hash_all(copied)
                subprocess.run(["sync", "-f", str(copied)], check=True)

            def clean() -> None:
                shutil.rmtree(copied, ignore_errors=True)

            theirs, their_cpu = measured(plain, runs=self.runs, before=clean)
            self.results["rclone, sync"] = timed(durable, runs=self.runs, before=clean)
            self.results["rclone, sha256, sync"] = timed(checked, runs=self.runs, before=clean)
            clean()
            peer = self.folder / "peer"
            ours, cpu = measured(
                lambda: self.kvg("clone", url, peer, "--trust", self.keyid),
                runs=self.runs,
                before=lambda: shutil.rmtree(peer, ignore_errors=True),
            )
            told = {"kvg_cpu_seconds": cpu, "plain_cpu_seconds": their_cpu}
            self.note("http, clone", ours, theirs, **told)

    def half(self) -> None:
        """An artifact that shares half its pages with one that is there."""
        share = self.folder / "half"
        store = Store.open(self.source, keyring=self.keyring)
        n_half = max(1, min(8, self.n_pages // 2))
        total = 2 * n_half * PAGE_TOKENS
        ids = [5 + n % 40_000 for n in range(total)]
        deposit(store, self.key, "one", ids, self.pages, 0)
        self.kvg("-C", self.source, "remote", "add", "half", str(share))
        self.kvg("-C", self.source, "push", "half", "one")
        whole = sum(
            path.stat().st_size for path in (share / "objects").rglob("*") if path.is_file()
        )
        other = ids[: total // 2] + [7 + n % 40_000 for n in range(total // 2)]

        class Half(Pages):
            def __init__(self, own: Pages) -> None:
                self._own = own

            def data(self, number: int) -> bytes:
                return self._own.data(number if number < n_half else number + 500_000)

        deposit(store, self.key, "two", other, Half(self.pages), 0)
        store.close()
        sent = self.kvg("-C", self.source, "push", "half", "two")
        self.results["half"] = {
            "whole_bytes": whole,
            "sent_bytes": sent["bytes"],
            "share": round(float(str(sent["bytes"])) / whole, 3),
        }
        print("half shared ", self.results["half"], flush=True)

    def nothing_new(self, n_artifacts: int) -> None:
        """A second push of nothing new, at this many artifacts and at half as many."""
        from kvg.trust import Keyring

        folder = self.folder / "many"
        keyring = Keyring(self.folder / "data/kvg/keys")
        store = Store.init(folder, keyring=keyring)
        store.trust_first(self.key)
        rows: list[dict[str, object]] = []
        write_object(store, made.SOURCE)
        self.kvg("-C", folder, "remote", "add", "many", str(self.folder / "many-share"))
        for begun, size in ((0, n_artifacts // 2), (n_artifacts // 2, n_artifacts)):
            grow(store, self.key, begun, size, n_pages=1)
            first = self.kvg("-C", folder, "push", "many")
            taken = timed(lambda: self.kvg("-C", folder, "push", "many"), runs=3)
            row = {
                "artifacts": size,
                "first_seconds": first["seconds"],
                "again_seconds": min(taken),
                "again_runs": taken,
                "again_cpu_seconds": round(self.cpu(folder, "many"), 3),
            }
            rows.append(row)
            print("nothing new ", row, flush=True)
        store.close()
        self.results["nothing_new"] = rows

    def cpu(self, folder: Path, name: str) -> float:
        """Processor seconds of one more push of nothing new: what a busy machine leaves alone."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.kvg("-C", folder, "push", name)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def peak(self, *words: str | Path) -> int:
        """The most bytes of memory that a command has at once."""
        program = (
            "import resource, sys; from kvg.cli.main import main; code = main(sys.argv[1:]);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)"
        )
        argv = [sys.executable, "-c", program, *map(str, words), "-q"]
        # a shell between: what a child has is told from its parent's size on otherwise
        done = subprocess.run(
            ["/bin/sh", "-c", '"$@"', "sh", *argv],
            env=self.env, cwd=self.folder, capture_output=True, check=True, text=True,
        )  # fmt: skip
        return int(done.stderr.split()[-1])

    def memory(self) -> None:
        """The most memory of a push and a clone, at all the pages and at a quarter of them."""
        rows = []
        store = Store.open(self.source, keyring=self.keyring)
        n = max(1, self.n_pages // 4)
        deposit(
            store,
            self.key,
            "quarter",
            [9 + i % 40_000 for i in range(n * PAGE_TOKENS)],
            self.pages,
            0,
        )
        store.close()
        for ref in ("quarter", "big"):
            share = self.folder / f"memory-{ref}"
            name = f"memory-{ref}"
            self.kvg("-C", self.source, "remote", "add", name, str(share))
            row = {"ref": ref, "push_peak_bytes": self.peak("-C", self.source, "push", name, ref)}
            peer = self.folder / f"memory-peer-{ref}"
            row["clone_peak_bytes"] = self.peak("clone", share, peer, "--trust", self.keyid)
            row["bytes"] = sum(f.stat().st_size for f in share.rglob("*") if f.is_file())
            rows.append(row)
            shutil.rmtree(share)
            shutil.rmtree(peer)
        self.results["memory"] = rows
        print("memory      ", rows, flush=True)

    @contextmanager
    def _server(self, start: Callable[[], object], name: str) -> Iterator[object]:
        from _pytest.outcomes import Skipped

        with ExitStack() as stack:
            try:
                server = stack.enter_context(start())
            except Skipped:
                self.missing.append(name)
                server = None
            yield server


def machine() -> dict[str, object]:
    """What it was measured on."""
    name = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


BESIDE = {
    "directory": ("cp, sha256, sync",),
    "ssh": ("rsync, fsync",),
    "http": ("rclone, sync", "rclone, sha256, sync"),
}
"""The plain tool, with what of kvg's work it leaves out: hashing, and a wait for the disk."""

AT_LEAST = 0.8
"""What kvg's speed is to be of a plain tool's."""


def told_of(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def summary(results: dict[str, object]) -> Iterator[str]:
    """Every figure beside what it is to be."""
    for name, row in results.items():
        if isinstance(row, dict) and "ratio" in row:
            told = told_of(row["ratio"] >= AT_LEAST)
            yield f"{name:<20} {row['ratio']:6.3f} of the plain tool; at least {AT_LEAST}: {told}"
            for more in BESIDE.get(name.partition(",")[0], ()):
                taken = results.get(more)
                if isinstance(taken, list):
                    yield f"{'':<20} {min(taken) / row['kvg_seconds']:6.3f} of {more}"
    if "half" in results:
        yield f"{'half shared':<20} {results['half']['share']:6.3f} of its bytes sent; about 0.5"
    if "nothing_new" in results:
        half, whole = results["nothing_new"]
        took, growth = whole["again_seconds"], whole["again_seconds"] / half["again_seconds"]
        yield (
            f"{'nothing new':<20} {took:6.3f} s at {whole['artifacts']:,} artifacts, "
            f"{whole['again_cpu_seconds']} s of a processor; under 1 s: {told_of(took < 1)}; "
            f"{growth:.2f} times what it is at half as many"
        )
    if "memory" in results:
        quarter, whole = results["memory"]
        for verb in ("push", "clone"):
            small, large = (row[f"{verb}_peak_bytes"] for row in (quarter, whole))
            yield (
                f"memory, {verb:<12} {large / 1e6:6.0f} MB for {whole['bytes'] / 1e6:,.0f} MB, "
                f"{small / 1e6:.0f} MB for {quarter['bytes'] / 1e6:,.0f} MB"
            )


def main() -> int:
    demo = ROOT / ".cache" / "demo"
    demo = demo if (demo / ".kvg").is_dir() else None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--artifacts", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--pages", type=Path, default=demo, help="a store whose pages are taken")
    parser.add_argument("--only", default="directory,ssh,s3,http,half,nothing_new,memory")
    parser.add_argument("--folder", type=Path, help="where to work; needs five times the bytes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        bench = Bench(Path(folder), given.bytes, given.runs, given.pages)
        for word in given.only.split(","):
            work = getattr(bench, word)
            work(given.artifacts) if word == "nothing_new" else work()
    found = {
        "schema": "kvg.bench.exchange/1",
        "machine": before,
        "load_after": [round(value, 2) for value in os.getloadavg()],
        "runs": given.runs,
        "missing": bench.missing,
        **bench.results,
    }
    for line in summary(bench.results):
        print(line)
    print("missing:", ", ".join(bench.missing) or "nothing")
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written to {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
