"""The base class of all configurations: frozen, typed, and strict about unknown keys.

Each table of a recipe is validated by one subclass, defined next to the code that it configures. `parse` turns
pydantic's report into a hint and one sentence that names the file, the table and the key.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from clearformer.errors import ConfigError, did_you_mean, suggest
from clearformer.synonyms import settings_like


class Config(BaseModel):
    """A frozen table of settings. Unknown keys are errors, so that a typo is never silently ignored."""

    # Validators are built on first use: a command validates few of the tables that it imports.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, protected_namespaces=(), defer_build=True
    )

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str = "") -> Self:
        """Validate `table`. `where` is its place in error messages, such as "recipes/copy.toml: [model]"."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise ConfigError(*explain(error, where, cls)) from None

    def changed(self, **fields: Any) -> Self:
        """Return a copy with some fields replaced, validated like the original."""
        return self.parse({**self.model_dump(exclude_unset=True), **fields})


EXPECTED = {  # the beginning of pydantic's error type -> what the value should be
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "string_type": "a string",
    "path_": "a path",
    "list_": "a list",
    "tuple_": "a list",
    "dict_": "a table",
    "mapping_": "a table",
    "model_": "a table",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
}

BOUNDS = {
    "greater_than_equal": "too small: it must be at least {ge:.10g}",
    "greater_than": "too small: it must be greater than {gt:.10g}",
    "less_than_equal": "too large: it must be at most {le:.10g}",
    "less_than": "too large: it must be less than {lt:.10g}",
}


class Place(NamedTuple):
    """The location of a problem: its key, the tables that lead there, and the declarations of the key and its table."""

    key: str
    tables: tuple[str, ...]
    field: FieldInfo | None
    schema: type[BaseModel] | None


def explain(error: ValidationError, where: str, schema: type[BaseModel]) -> tuple[str, str | None]:
    """Return the message and the hint for the first problem of a ValidationError."""
    problem = error.errors(include_url=False)[0]
    kind, loc, value = problem["type"], problem["loc"], problem["input"]
    is_name = bool(loc) and loc[-1] == "[key]"  # the name of a table, not a value
    place = locate(loc[:-2] if is_name else loc, schema)
    if place.tables:
        inner = ".".join(place.tables)
        where = f"{where[:-1]}.{inner}]" if where.endswith("]") else f"{where}: [{inner}]" if where else f"[{inner}]"
    before = f"{where}: " if where else ""
    reason = problem["msg"].removeprefix("Value error, ")
    if not place.key:
        return f"{before}{reason}", None
    if kind == "extra_forbidden":
        known = place.schema.model_fields if place.schema and place.key == loc[-1] else {}
        return f"{before}unknown key `{loc[-1]}`", suggest_key(place.key, known, where) if known else None
    hint = describe(place)
    if is_name:
        return f"{before}{value!r} is not a valid name in [{place.key}]", hint
    if kind == "missing" and isinstance(loc[-1], str):
        return f"{before}missing key `{place.key}`", hint
    if kind == "value_error" and isinstance(value, Mapping):
        return f"{before}{place.key}: {reason}", None
    setting = f"{where} {place.key}" if where.endswith("]") else f"{before}{place.key}"
    index = "".join(f"[{part}]" for part in loc if isinstance(part, int) and kind != "missing")
    if kind == "literal_error" and isinstance(value, str):
        close = suggest(value, re.findall("'(.*?)'", problem["ctx"]["expected"]))
        hint = close if close.startswith("did you mean") else hint
    return f"{setting}{index} = {as_toml(value)}{failure(problem)}", hint


def suggest_key(key: str, known: Collection[str], where: str) -> str:
    """Return the hint for an unknown key of the table in `where`: a key with the same meaning, here or elsewhere."""
    settings = settings_like(key)
    names = [setting.rpartition(".")[2] for setting in settings]
    if "[model" in where:  # the architecture determines the keys of [model]
        settings = [setting for setting in settings if not setting.startswith("model.")]
        if "base" in known and names and not settings:
            return did_you_mean([f"base.{names[0]}"])
    is_slip = bool(get_close_matches(key, known, cutoff=0.85))  # such as `seed` for `seeds`
    if settings and not is_slip and not any(name in known for name in names):
        return did_you_mean(settings[:1])
    return suggest(key, known, names)


def locate(loc: Sequence[str | int], schema: type[BaseModel]) -> Place:
    """Follow pydantic's path to a problem, ignoring its tags for the members of a union."""
    place, inner = Place("", (), None, None), schema
    for part in loc:
        if isinstance(part, int):
            return place
        tables = (*place.tables, place.key) if place.key else ()
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            field = inner.model_fields.get(part)
            place, inner = Place(part, tables, field, inner), table_in(field.annotation if field else None)
        elif get_origin(inner) is dict:
            place, inner = Place(part, tables, place.field, None), table_in(get_args(inner)[1])
    return place


def table_in(annotation: Any) -> Any:
    """Return the type of configuration, or dictionary of configurations, that a field holds; None if there is none."""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return kind
    return None


def failure(problem: ErrorDetails) -> str:
    """Return the end of an error message that begins with a setting and its value."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in BOUNDS:
        return f" is {BOUNDS[kind].format(**context)}"
    for start, expected in EXPECTED.items():
        if kind.startswith(start):
            return f" is not {expected.format(**context)}"
    if kind in ("missing", "too_short", "too_long"):
        return f" has too {'many' if kind == 'too_long' else 'few'} values"
    reason = problem["msg"].removeprefix("Value error, ")
    return f": {reason[:1].lower()}{reason[1:]}"


def describe(place: Place) -> str | None:
    """Return the description of a key, with its default as an example."""
    if place.field is None:
        return None
    default = place.field.get_default()
    is_example = default not in (None, PydanticUndefined, (), "") and not isinstance(default, BaseModel)
    example = f"for example {place.key} = {as_toml(default)}" if is_example else ""
    if place.field.description is None:
        return example or None
    return f"{place.field.description} ({example})" if example else place.field.description


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value)
