"""Options of commands, made from the fields of option classes.

The name, type, default, choices and checks of an option come from its field, and its texts from
``option_help``. An :class:`OptionsCommand` passes its callback a validated object of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import attrs
import click
from click.core import ParameterSource

from clawblox.cli.flags import in_flags
from clawblox.cli.option_help import HELP
from clawblox.config.arguments import parse_label
from clawblox.errors import ConfigError
from clawblox.results import Labels, format_label

_F = TypeVar("_F", bound=Callable[..., Any])


# -- options ------------------------------------------------------------------------------------


class SectionOption(click.Option):
    """An option that a :class:`SectionedCommand` shows in a section.

    Attributes:
        section: Title of the section.
    """

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


section_option = partial(click.option, cls=SectionOption)
"""``click.option`` for an option that a :class:`SectionedCommand` shows in a section."""


def add_options(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return a decorator that adds several options to a command, in this order."""

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class FieldOption(SectionOption):
    """The option of a field. A blank environment variable counts as unset.

    Attributes:
        owner: The class of the field.
        into: Parameter of the callback that gets the object.
    """

    def __init__(self, *args: Any, owner: type, into: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.owner = owner
        self.into = into

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the value of the variable, stripped; None if it is blank."""
        return (super().resolve_envvar_value(ctx) or "").strip() or None


def options_from(
    owner: type,
    into: str,
    *,
    without: Collection[str] = (),
    defaults: Mapping[str, Any] | None = None,
    reads_environment: bool = False,
) -> Callable[[_F], _F]:
    """Return a decorator that gives an :class:`OptionsCommand` an option for each field of a class.

    Args:
        owner: An attrs class whose fields all have defaults.
        into: Parameter of the callback that gets the object.
        without: Fields that the command does not offer; they keep their defaults.
        defaults: Defaults of the command that differ from the class.
        reads_environment: Whether environment variables set the options too.
    """
    types = get_type_hints(owner)
    fields = {field.name: field for field in attrs.fields(owner)}
    offered = [
        (section, name, shown)
        for section, options in HELP.items()
        for name, shown in options.items()
        if name in fields and name not in without
    ]

    def decorate(command: _F) -> _F:
        for section, name, shown in reversed(offered):  # click reverses the order of decorators
            default = (defaults or {}).get(name, fields[name].default)
            if isinstance(default, float) and default.is_integer():
                default = int(default)  # the help shows 60 rather than 60.0
            flag = shown.flag or f"--{name.replace('_', '-')}"
            has_envvar = reads_environment and shown.envvar is not None
            is_switch = types[name] is bool and has_envvar
            command = click.option(
                f"{flag}/--no-{flag[2:]}" if is_switch else flag,
                name,
                cls=FieldOption,
                owner=owner,
                into=into,
                section=section,
                help=shown.text,
                metavar=shown.metavar or None,
                default=default,
                show_default=(shown.none or False) if default in (None, "") else True,
                envvar=shown.envvar if has_envvar else None,
                show_envvar=has_envvar,
                **_type_arguments(types[name]),
            )(command)
        return command

    return decorate


def _type_arguments(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, as typing has it
    """Return the arguments of ``click.option`` for a field's type."""
    types = [part for part in get_args(hint) if part is not NoneType]
    hint = types[0] if len(types) == 1 and get_origin(hint) is not Literal else hint
    if hint == Labels:
        return {"type": str, "multiple": True, "callback": parse_labels}
    if hint is bool:
        return {"is_flag": True}
    if get_origin(hint) is Literal:
        return {"type": click.Choice(get_args(hint))}
    if get_origin(hint) is Mapping:
        return {"type": str, "multiple": True, "callback": _parse_pairs}
    return {"type": hint if hint in (int, float) else str}


def _parse_pairs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...] | None
) -> dict[str, str]:
    """Parse variables given as ``KEY=VALUE``; a click callback."""
    for value in values or ():
        if "=" not in value:
            raise click.BadParameter(f"must be {param.metavar}, not {value!r}", ctx, param)
    return dict(value.split("=", 1) for value in values or ())


def parse_labels(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...] | None
) -> Labels:
    """Parse labels given as ``NAME=VALUE``; a click callback."""
    return {name: parse_label(value) for name, value in _parse_pairs(ctx, param, values).items()}


# -- commands -----------------------------------------------------------------------------------


class OptionsCommand(click.Command):
    """A command whose callback gets an object for each class of its field options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, then create the objects.

        Raises:
            click.UsageError: An argument or the value of an option is wrong.
        """
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # the command line may be invalid while a shell completes it
            return rest
        options = [param for param in self.params if isinstance(param, FieldOption)]
        for into in dict.fromkeys(option.into for option in options):
            own = {str(option.name): option for option in options if option.into == into}
            ctx.params[into] = _make_object(ctx, own)
        return rest


def _make_object(ctx: click.Context, options: Mapping[str, FieldOption]) -> object:
    values = {name: ctx.params.pop(name) for name in options}
    owner = next(iter(options.values())).owner
    try:
        return owner(**values)
    except ConfigError as error:
        name = str(error.key).partition(".")[0]
        hint = in_flags(error, ctx.command).hint
        text = f"{error.message}\n  hint: {hint}" if hint else error.message
        raise click.BadParameter(text, ctx, options[name]) from error


def typed_parameters(ctx: click.Context, names: Collection[str]) -> Iterator[click.Parameter]:
    """Yield those of the named parameters that are on the command line."""
    for param in ctx.command.params:
        if param.name in names and is_typed(ctx, param.name):
            yield param


def is_typed(ctx: click.Context, name: str) -> bool:
    """Return whether a parameter is on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


class SectionedCommand(OptionsCommand):
    """A command whose help shows its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without a section come last."""
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*HELP, "Other")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                section = param.section if isinstance(param, SectionOption) else "Other"
                rows[section].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


# -- options as words ---------------------------------------------------------------------------


def option_words(
    command: click.Command, options: object, *, without: Collection[str] = ()
) -> Iterator[str]:
    """Yield the command-line words for the options that differ from a command's defaults.

    Args:
        command: The command.
        options: An object of one of its option classes.
        without: Names of options to leave out.
    """
    for param in command.params:
        if not isinstance(param, FieldOption) or param.name in without:
            continue
        if param.owner is type(options):
            value = getattr(options, str(param.name))
            if value != param.default and (value or param.default is not None):
                yield from _words(param, value)


def _words(param: click.Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - of any option
    if param.is_flag:
        yield (param.opts if value else param.secondary_opts)[0]
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from (param.opts[0], f"{name}={format_label(member)}")
    else:
        is_whole = isinstance(value, float) and value.is_integer()
        # --port 0 means no fixed port.
        text = str(int(value or 0) if is_whole or value is None else value)
        # A value that looks like an option must be part of the same word.
        yield from (f"{param.opts[0]}={text}",) if text.startswith("-") else (param.opts[0], text)
