"""Shell completion: the scripts, and what may come next on a command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperOption

from kvg.cli.table import BY_NAME, VERBS

if TYPE_CHECKING:
    from kvg.cli.group import VerbCommand

BASH = """\
_kvg() {
  local IFS=$'\\n'
  COMPREPLY=($(kvg __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _kvg kvg
"""
ZSH = """\
#compdef kvg
_kvg() {
  local -a found
  found=("${(@f)$(kvg __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${found[*]}" ]]; then compadd -a found; else _files; fi
}
compdef _kvg kvg
"""
FISH = """\
function __kvg_complete
    set -l words (commandline -opc) (commandline -ct)
    kvg __complete -- $words[2..-1] 2>/dev/null
end
complete -c kvg -a '(__kvg_complete)'
"""
SCRIPTS: dict[str, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH}

REF_METAVARS = ("REF", "A", "B", "TARGET", "OLD", "NAME", "OBJECT")


def candidates(words: Sequence[str], refs: Sequence[str]) -> Iterator[str]:
    """What the last of ``words`` may become; an empty one may become anything."""
    before, last = list(words[:-1]), (words[-1] if words else "")
    path = [word for word in before if not word.startswith("-")]
    found: Iterator[str]
    if not path:
        found = _options(None) if last.startswith("-") else (v.name for v in VERBS if not v.hidden)
    elif path[0] not in BY_NAME:
        return
    elif BY_NAME[path[0]].subverbs and len(path) == 1:
        found = (name for name, _ in BY_NAME[path[0]].subverbs)
    else:
        command = _command(path)
        found = _options(command) if last.startswith("-") else _arguments(command, refs)
    yield from (text for text in found if text.startswith(last))


def _command(path: Sequence[str]) -> VerbCommand | None:
    from kvg.cli.group import SubverbGroup, build_root

    found = build_root().find(path[0])
    return found.find(path[1]) if isinstance(found, SubverbGroup) else found


def _options(command: VerbCommand | None) -> Iterator[str]:
    from kvg.cli.group import global_params

    params = command.params if command is not None else global_params()
    for param in params:
        if isinstance(param, TyperOption):
            yield from (name for name in param.opts if name.startswith("--"))
    yield "--help"


def _arguments(command: VerbCommand | None, refs: Sequence[str]) -> Iterator[str]:
    if command is None:
        return
    metavars = {p.metavar for p in command.params if isinstance(p, TyperArgument)}
    if command.path[0] not in ("key", "model") and metavars & set(REF_METAVARS):
        yield from refs
