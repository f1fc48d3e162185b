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
from tests.models import REPO

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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(
    argv: Sequence[str], port: int, log: Path, *, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """``argv``, listening on ``port`` of this machine, for the time of the ``with`` block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )
    try:
        _await(process, port, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
    pytest.fail(f"{process.args}: does not listen: {log.read_text(errors='replace')[-2000:]}")


@dataclass(frozen=True)
class Ssh:
    """An sshd of its own, with a ``kvg`` on the PATH that it gives."""

    port: int
    access: Access
    folder: Path

    def url(self, path: Path) -> str:
        return f"ssh://127.0.0.1:{self.port}{path}"


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
def sshd(folder: Path) -> Iterator[Ssh]:
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
        f"ListenAddress 127.0.0.1:{port}\n"
        f"HostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'authorized'}\n"
        f"PidFile {folder / 'pid'}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        f"MaxStartups 100\nPermitRootLogin yes\n"
        f"SetEnv PATH={path} HOME={folder} XDG_CONFIG_HOME={folder / 'config'}\n"
    )
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host *\n  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    argv = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
    access = Access({"KVG_SSH_COMMAND": f"ssh -T -F {folder / 'ssh_config'}"})
    with running(argv, port, folder / "sshd.log"):
        yield Ssh(port, access, folder)


@contextmanager
def nginx(folder: Path, root: Path) -> Iterator[str]:
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
        f"  server {{ listen 127.0.0.1:{port}; root {root}; }}\n}}\n"
    )
    argv = [program, "-p", str(folder), "-e", str(folder / "error.log")]
    argv += ["-c", str(folder / "nginx.conf")]
    with running(argv, port, folder / "nginx.log"):
        yield f"http://127.0.0.1:{port}"


@dataclass(frozen=True)
class S3:
    """An S3 server and who one is there. ``client`` looks behind a remote's back."""

    endpoint: str
    access: Access

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its address."""
        import urllib.request

        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
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
def moto(folder: Path) -> Iterator[S3]:
    """An S3 server that heeds If-Match and If-None-Match, and has multipart uploads."""
    pytest.importorskip("obstore", reason="no obstore on this machine")
    program, port = need("moto_server"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    with running([program, "-H", "127.0.0.1", "-p", str(port)], port, folder / "moto.log"):
        endpoint = f"http://127.0.0.1:{port}"
        yield S3(endpoint, s3_access(endpoint))


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
        return f"oci://{self.host}/{repository}"


USER, PASSWORD = "reader", "a password of the registry"


@contextmanager
def registry(folder: Path, *, login: bool = False) -> Iterator[Oci]:
    """A real registry; with ``login`` it wants the one that docker's configuration has."""
    program, port = need("docker-registry"), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    host = f"127.0.0.1:{port}"
    text = (
        "version: 0.1\nlog: {level: warn}\n"
        f"storage:\n  filesystem: {{rootdirectory: {folder / 'data'}}}\n"
        "  delete: {enabled: true}\n"
        f"http: {{addr: {host}}}\n"
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
        (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
        access = Access({"DOCKER_CONFIG": str(folder)})
    (folder / "registry.yml").write_text(text)
    with running([program, "serve", str(folder / "registry.yml")], port, folder / "registry.log"):
        yield Oci(host, access, folder)
