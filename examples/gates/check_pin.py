"""An answer NAME==VERSION, and no more, has to be exactly what a lock file pins NAME to."""

import re
import sys

PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)", re.MULTILINE)


def read(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


def plain(package):
    return re.sub(r"[-_.]+", "-", package).lower()


answered = PIN.fullmatch(read("answer.txt").strip())
if answered is None:
    sys.exit("not one NAME==VERSION and nothing else")
package, version = plain(answered[1]), answered[2]
locked = {pinned for name, pinned in PIN.findall(read("text.txt")) if plain(name) == package}
if locked != {version}:
    sys.exit(f"{package} is locked at {' and '.join(sorted(locked)) or 'nothing'}, not {version}")
