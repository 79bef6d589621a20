"""A process that renders chat templates: requests and answers are lines of JSON.

It is started by chat_template.py as a script, and imports nothing of this package. Templates are code of unknown
origin: Jinja's sandbox lets them format text only, and the limits below end a template that would fill the
memory. The process that asks ends a template that takes too long.
"""

import json
import resource
import sys
from functools import lru_cache
from typing import Any, NoReturn

MEMORY = 2**29  # bytes
MOST_TEXT = 2**22  # characters of a rendered conversation


def environment() -> Any:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: object) -> NoReturn:
        raise TemplateError(str(reason))

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.globals["raise_exception"] = refuse
    return sandbox


@lru_cache(maxsize=8)
def compiled(template: str) -> Any:
    return environment().from_string(template)


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Render one conversation. Whatever a template raises is its error."""
    try:
        parts, n_chars = list[str](), 0
        for part in compiled(request["template"]).generate(**request["values"]):
            parts.append(str(part))
            n_chars += len(parts[-1])
            if n_chars > MOST_TEXT:
                return {"error": f"it writes more than {MOST_TEXT >> 20} Mi characters"}
        return {"text": "".join(parts)}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY >> 20} MiB of memory"}
    except RecursionError:
        return {"error": "it calls itself without end"}
    except Exception as error:
        return {"error": f"{error or type(error).__name__}"[:300]}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
