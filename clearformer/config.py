"""The base of every configuration: frozen, typed, and strict about unknown keys.

Each table of a recipe maps to one subclass, which lives in the file of the thing it configures.
`parse` turns pydantic's report into one sentence that names the file, the table and the key.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from clearformer.errors import ConfigError, suggest


class Config(BaseModel):
    """A frozen table of settings. Unknown keys are refused, so that a typo never silently does nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, protected_namespaces=())

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Validate `table`; `where` names it in an error ("recipes/copy.toml: [model]")."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise ConfigError(*explain(error, where, cls)) from None

    def changed(self, **fields: Any) -> Self:
        """A copy with some fields replaced, validated like the original."""
        return self.parse({**self.model_dump(exclude_unset=True), **fields}, type(self).__name__)


def explain(error: ValidationError, where: str, schema: type[BaseModel]) -> tuple[str, str | None]:
    """The first problem of a ValidationError as (sentence, hint)."""
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    fields = schema.model_fields
    for part in path[:-1]:
        inner = fields[part].annotation if part in fields else None
        fields = inner.model_fields if isinstance(inner, type) and issubclass(inner, BaseModel) else {}
    if path[:-1]:
        where = f"{where} {'.'.join(path[:-1])}" if where.endswith("]") else f"{where} [{'.'.join(path[:-1])}]"
    key = path[-1] if path else ""
    if problem["type"] == "extra_forbidden":
        return f"{where} has no key `{key}`", suggest(key, fields) if fields else None
    if problem["type"] == "missing":
        return f"{where} needs the key `{key}`", None
    reason = problem["msg"].removeprefix("Value error, ")
    hint = fields[key].description if key in fields else None
    return (
        f"{where} `{key}` = {problem['input']!r}: {reason[:1].lower()}{reason[1:]}" if key else f"{where}: {reason}",
        hint,
    )
