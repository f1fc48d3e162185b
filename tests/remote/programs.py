"""Real servers for tests: sshd, nginx, a container registry and S3 servers, each in a folder.

A test that needs a program which is not there is skipped, and says which.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.remote import Access

REPO = Path(__file__).parents[2]
START_S = 20.0
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def need(program: str) -> str:
    """The path of ``program``; skips the test, by the program's name, where it is missing."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if found is None:
        own = Path(sys.executable).parent / program
        if not own.exists():
            pytest.skip(f"no {program} on this machine")
        return str(own)
    return found


@dataclass(frozen=True)
class Host:
    """Where a server runs: what stands before its command, and the address that it listens on."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


HERE = Host()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(
    argv: Sequence[str], port: int, log: Path, *, host: Host = HERE
) -> Iterator[subprocess.Popen[bytes]]:
    """``argv``, listening on ``port`` of ``host``, for the time of the ``with`` block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*host.prefix, *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        _await(process, port, log, host)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path, host: Host) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if _listens(host, port):
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    pytest.fail(f"{process.args}: does not listen: {log.read_text(errors='replace')[-2000:]}")


def _listens(host: Host, port: int) -> bool:
    if host.prefix:
        program = f"import socket; socket.create_connection(({host.address!r}, {port}), 0.5)"
        argv = [*host.prefix, sys.executable, "-S", "-c", program]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    try:
        socket.create_connection((host.address, port), 0.5).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Ssh:
    """An sshd of its own, with a ``kvg`` on the PATH that it gives."""

    port: int
    access: Access
    folder: Path
    host: Host

    def url(self, path: Path) -> str:
        return f"ssh://{self.host.address}:{self.port}{path}"


def kvg_program(folder: Path) -> Path:
    """A program named ``kvg`` in a folder of its own: this very source."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "kvg"
    program.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={REPO}:{REPO / 'kernels'} exec {sys.executable} "
        "-c 'from kvg.cli.main import run; run()' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


@contextmanager
def sshd(folder: Path, host: Host = HERE) -> Iterator[Ssh]:
    """A real sshd on a high port with keys of its own, as the user who runs the tests."""
    program, keygen = need("sshd"), need("ssh-keygen")
    need("ssh")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    (folder / "authorized").chmod(0o600)
    port = free_port()
    path = f"{kvg_program(folder / 'bin').parent}:{SYSTEM_PATH}"
    (folder / "sshd_config").write_text(
        f"ListenAddress {host.address}:{port}\n"
        f"HostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'authorized'}\n"
        f"PidFile {folder / 'pid'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        f"MaxStartups 100\nPermitRootLogin yes\n"
        f"SetEnv PATH={path} HOME={folder} XDG_CONFIG_HOME={folder / 'config'}\n"
    )
    known = folder / "known_hosts"
    known.write_text(f"[{host.address}]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    argv = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
    access = Access({"KVG_SSH_COMMAND": f"ssh -T -F {folder / 'ssh_config'}"})
    with running(argv, port, folder / "sshd.log", host=host):
        yield Ssh(port, access, folder, host)


@contextmanager
def nginx(folder: Path, root: Path, host: Host = HERE) -> Iterator[str]:
    """A real nginx that serves ``root``; yields its address."""
    program, port = need("nginx"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    user = "user root;\n" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"  {kind}_temp_path {folder / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\n{user}pid {folder / 'nginx.pid'};\nerror_log {folder / 'error.log'};\n"
        f"events {{}}\nhttp {{\n  access_log {folder / 'access.log'};\n{temporary}"
        f"  server {{ listen {host.address}:{port}; root {root}; }}\n}}\n"
    )
    argv = [program, "-p", str(folder), "-e", str(folder / "error.log")]
    argv += ["-c", str(folder / "nginx.conf")]
    with running(argv, port, folder / "nginx.log", host=host):
        yield f"http://{host.address}:{port}"


@dataclass(frozen=True)
class S3:
    """An S3 server and who one is there. ``client`` looks behind a remote's back."""

    endpoint: str
    access: Access
    host: Host = HERE

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its address."""
        program = (
            "import sys, urllib.request as web\n"
            "web.urlopen(web.Request(sys.argv[1], method='PUT')).close()"
        )
        argv = [*self.host.prefix, sys.executable, "-S", "-c", program, f"{self.endpoint}/{name}"]
        subprocess.run(argv, check=True)
        return f"s3://{name}"

    def raw(self, bucket: str) -> object:
        """The objects of a bucket, for ``obstore``'s functions."""
        from obstore.store import S3Store

        return S3Store(
            bucket.removeprefix("s3://"),
            endpoint=self.endpoint,
            access_key_id="test",
            secret_access_key="test-secret",
            region="us-east-1",
            client_options={"allow_http": True},
        )


def s3_access(endpoint: str) -> Access:
    return Access(
        {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }
    )


@contextmanager
def moto(folder: Path, host: Host = HERE) -> Iterator[S3]:
    """An S3 server that heeds If-Match and If-None-Match, and has multipart uploads."""
    pytest.importorskip("obstore", reason="no obstore on this machine")
    program, port = need("moto_server"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    argv = [program, "-H", host.address, "-p", str(port)]
    with running(argv, port, folder / "moto.log", host=host):
        endpoint = f"http://{host.address}:{port}"
        yield S3(endpoint, s3_access(endpoint), host)


@contextmanager
def rclone(folder: Path) -> Iterator[S3]:
    """An S3 server in front of a folder: multipart uploads, but it heeds no conditions."""
    pytest.importorskip("obstore", reason="no obstore on this machine")
    program, port = need("rclone"), free_port()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    argv = [program, "serve", "s3", str(folder / "data"), "--addr", f"127.0.0.1:{port}"]
    argv += ["--auth-key", "test,test-secret", "--config", str(folder / "rclone.conf")]
    with running(argv, port, folder / "rclone.log"):
        endpoint = f"http://127.0.0.1:{port}"
        yield S3(endpoint, s3_access(endpoint))


@dataclass(frozen=True)
class Oci:
    """A container registry; ``host`` is HOST:PORT."""

    host: str
    access: Access
    folder: Path

    def url(self, repository: str) -> str:
        scheme = "oci" if self.host.startswith("127.") else "oci+http"
        return f"{scheme}://{self.host}/{repository}"


USER, PASSWORD = "reader", "a password of the registry"


@contextmanager
def registry(
    folder: Path, host: Host = HERE, *, login: bool = False, deletes: bool = True
) -> Iterator[Oci]:
    """A real registry; with ``login`` it wants the one that docker's configuration has."""
    program, port = need("docker-registry"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    server = f"{host.address}:{port}"
    text = (
        "version: 0.1\nlog: {level: warn}\n"
        f"storage:\n  filesystem: {{rootdirectory: {folder / 'data'}}}\n"
        f"  delete: {{enabled: {str(deletes).lower()}}}\n"
        f"http: {{addr: {server}}}\n"
    )
    access = Access({}, folder)
    if login:
        import base64
        import json

        import bcrypt

        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        text += f"auth:\n  htpasswd: {{realm: test, path: {folder / 'htpasswd'}}}\n"
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {server: {"auth": auth}}}))
        access = Access({"DOCKER_CONFIG": str(folder)})
    (folder / "registry.yml").write_text(text)
    argv = [program, "serve", str(folder / "registry.yml")]
    with running(argv, port, folder / "registry.log", host=host):
        yield Oci(server, access, folder)
