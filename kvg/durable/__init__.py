"""Durable changes to files: the only place where kvg writes, renames or removes anything.

Every step passes through ``step``, so that a test can stop, fail or shorten each one in turn.
Guarantee: after ``write_new`` or ``replace`` returns, the file is whole under its name on disk,
also after a loss of power; before it returns, the name holds what it held before.
"""

from kvg.durable.folders import (
    MANY_FOLDERS,
    SYNCERS,
    Held,
    hold,
    make_dir,
    sync_dir,
    sync_dirs,
    sync_files,
)
from kvg.durable.opening import (
    LinkFound,
    check_plain,
    check_target,
    is_file,
    plain,
    store_above,
)
from kvg.durable.removing import (
    move,
    move_all,
    remove,
    remove_abandoned,
    remove_all,
    remove_empty,
    remove_tree,
)
from kvg.durable.sharing import (
    give_to_group,
    is_shared,
    mode_of,
    open_to_group,
    share,
)
from kvg.durable.steps import (
    Hook,
    raise_translated,
    set_hook,
    step,
    translated,
)
from kvg.durable.writing import (
    PARTIAL,
    Staged,
    claim,
    hold_room,
    make_zeros,
    open_in_folder,
    replace,
    stage,
    temporary_name,
    write_all,
    write_new,
)

__all__ = [
    "Held",
    "Hook",
    "LinkFound",
    "MANY_FOLDERS",
    "PARTIAL",
    "SYNCERS",
    "Staged",
    "check_plain",
    "check_target",
    "claim",
    "give_to_group",
    "hold",
    "hold_room",
    "is_file",
    "is_shared",
    "make_dir",
    "make_zeros",
    "mode_of",
    "move",
    "move_all",
    "open_in_folder",
    "open_to_group",
    "plain",
    "raise_translated",
    "remove",
    "remove_abandoned",
    "remove_all",
    "remove_empty",
    "remove_tree",
    "replace",
    "set_hook",
    "share",
    "stage",
    "step",
    "store_above",
    "sync_dir",
    "sync_dirs",
    "sync_files",
    "temporary_name",
    "translated",
    "write_all",
    "write_new",
]
