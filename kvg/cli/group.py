"""The parser: global options before and after the verb, and verbs that are imported when named."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, get_args, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from kvg.cli.coercion import make_plain
from kvg.cli.declare import Context, Option
from kvg.cli.globals import declare_globals
from kvg.cli.table import BY_NAME, MISTAKES, VERBS, Verb
from kvg.errors import Bug, UsageError

if TYPE_CHECKING:
    from typer._click.core import Context as ClickContext
    from typer._click.core import Parameter

    from kvg.cli.invocation import Globals

PROGRAM = "kvg"
CONTEXT = {"help_option_names": ["-h", "--help"]}

Command = Callable[..., object]


class PlainHelp:
    """The help option, turned into a value as every other one is."""

    def get_help_option(self, ctx: ClickContext) -> TyperOption | None:
        found: TyperOption | None = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            make_plain(found)
        return found


class VerbCommand(PlainHelp, TyperCommand):
    """A verb: its own parameters, then the global ones, and a help page of one form."""

    verb: Verb
    path: tuple[str, ...]
    examples: str

    def get_help(self, ctx: ClickContext) -> str:
        from kvg.cli.help import page_of, text_of

        return text_of(page_of(self))

    def invoke(self, ctx: ClickContext) -> object:
        from kvg.cli.invocation import invocation

        invocation(ctx).given.shows = self.verb.shows
        return super().invoke(ctx)

    @property
    def summary(self) -> str:
        """What the verb does, in a few words."""
        if len(self.path) == 1:
            return self.verb.summary
        return dict(self.verb.subverbs)[self.path[-1]]

    @property
    def has_dry_run(self) -> bool:
        """Whether this verb can show what it would do."""
        return self.path[-1] in self.verb.dry_run


class SubverbGroup(PlainHelp, TyperGroup):
    """A verb with verbs of its own, such as ``key``."""

    verb: Verb

    def list_commands(self, ctx: ClickContext) -> list[str]:
        return [name for name, _ in self.verb.subverbs]

    def get_command(self, ctx: ClickContext, cmd_name: str) -> VerbCommand | None:
        return self.find(cmd_name)

    def find(self, name: str) -> VerbCommand | None:
        """The verb of this name, None when there is none."""
        known = any(name == known for known, _ in self.verb.subverbs)
        return _build(self.verb, (self.verb.name, name)) if known else None

    def named(self, name: str) -> VerbCommand:
        """The verb of this name. Raises ``UsageError``."""
        found = self.find(name)
        if found is None:
            known = [name for name, _ in self.verb.subverbs]
            raise _unknown(f"{self.verb.name} {name}", name, known)
        return found

    def resolve_command(
        self, ctx: ClickContext, args: list[str]
    ) -> tuple[str, VerbCommand, list[str]]:
        return args[0], self.named(args[0]), args[1:]

    def get_help(self, ctx: ClickContext) -> str:
        from kvg.cli.help import group_page, text_of

        return text_of(group_page(self.verb))


class RootGroup(PlainHelp, TyperGroup):
    """``kvg`` itself."""

    def list_commands(self, ctx: ClickContext) -> list[str]:
        return [verb.name for verb in VERBS if not verb.hidden]

    def get_command(self, ctx: ClickContext, cmd_name: str) -> VerbCommand | SubverbGroup | None:
        return self.find(cmd_name)

    def find(self, name: str) -> VerbCommand | SubverbGroup | None:
        """The verb of this name, None when there is none."""
        verb = BY_NAME.get(name)
        if verb is None:
            return None
        return _build_group(verb) if verb.subverbs else _build(verb, (verb.name,))

    def named(self, name: str) -> VerbCommand | SubverbGroup:
        """The verb of this name. Raises ``UsageError``."""
        found = self.find(name)
        if found is None:
            raise _unknown(name, name, [verb.name for verb in VERBS if not verb.hidden])
        return found

    def resolve_command(
        self, ctx: ClickContext, args: list[str]
    ) -> tuple[str, VerbCommand | SubverbGroup, list[str]]:
        return args[0], self.named(args[0]), args[1:]

    def get_help(self, ctx: ClickContext) -> str:
        from kvg.cli.help import root_page, text_of

        return text_of(root_page())


def build_root() -> RootGroup:
    """The parser of the whole command line."""
    root = RootGroup(name=PROGRAM, context_settings=dict(CONTEXT), rich_markup_mode=None)
    root.params.extend(global_params())
    return root


_params: list[TyperOption] = []


def global_params() -> list[TyperOption]:
    """The global options as parameters that write into the context's ``Globals``."""
    if not _params:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(_as_typer(declare_globals))
        for param in typer.main.get_command(app).params:
            if isinstance(param, TyperOption):
                param.expose_value = False
                param.callback = _note_global
                make_plain(param)
                _params.append(param)
    return _params


def _note_global(ctx: ClickContext, param: Parameter, value: object) -> object:
    """Note a global option that was given; the one nearest to the verb's arguments wins."""
    if value is not None and value != [] and value != ():
        found: Globals | None = ctx.obj
        if found is not None:
            found.note(param.name, value)
    return value


def _build_group(verb: Verb) -> SubverbGroup:
    group = SubverbGroup(name=verb.name, context_settings=dict(CONTEXT), rich_markup_mode=None)
    group.verb = verb
    group.params.extend(global_params())
    return group


def _build(verb: Verb, path: tuple[str, ...]) -> VerbCommand:
    module = importlib.import_module(f"kvg.cli.verbs.{verb.module}")
    commands: dict[str, Command] = module.COMMANDS
    examples: dict[str, str] = module.EXAMPLES
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(path[-1], cls=VerbCommand, context_settings=dict(CONTEXT))(
        _as_typer(commands[path[-1]])
    )
    built = typer.main.get_command(app)
    if not isinstance(built, VerbCommand):
        raise Bug(f"{' '.join(path)}: not one command")
    built.verb, built.path, built.examples = verb, path, examples[path[-1]]
    for param in built.params:
        if isinstance(param, TyperArgument | TyperOption):
            make_plain(param)
    built.params.extend(global_params())
    return built


def _as_typer(function: Command) -> Command:
    """``function``, what it declares in the words of typer."""

    @wraps(function)
    def called(*args: object, **values: object) -> object:
        return function(*args, **values)

    hints = get_type_hints(function, include_extras=True)
    told = {name: _told(hint) for name, hint in hints.items() if name != "return"}
    declared = inspect.signature(function)
    called.__annotations__ = told
    called.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(annotation=told[name]) for name, p in declared.parameters.items()],
        return_annotation=declared.empty,
    )
    return called


def _told(hint: object) -> object:
    if hint is Context:
        return typer.Context
    kind, declared = get_args(hint)
    make = typer.Option if isinstance(declared, Option) else typer.Argument
    told = make(
        *declared.names,
        metavar=declared.metavar,
        help=declared.help,
        min=declared.min,
        max=declared.max,
        callback=declared.callback,
    )
    return Annotated[kind, told]


def _unknown(shown: str, given: str, names: list[str]) -> UsageError:
    if given in MISTAKES and shown == given:
        return UsageError(f"{shown}: no such verb", hint=MISTAKES[given])
    near = difflib.get_close_matches(given, names, n=1)
    parent = shown.removesuffix(given)
    hint = f"{PROGRAM} {parent}{near[0]}" if near else f"{PROGRAM} {parent}--help"
    return UsageError(f"{shown}: no such verb", hint=hint)
