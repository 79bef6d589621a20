"""What a person reads: no private dialect, identifiers that name values, counts that agree."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearformer.wording import agree, count, listed

sys.path.insert(0, str(Path(__file__).parent))
import prose

PATHS = prose.modules()
GRAMMAR = {"count": count, "agree": agree}

SINGULAR = r"is|has|was|does|lacks|occurs|differs|needs|takes|exists|fits"
PLURAL = r"are|have|were|do|lack|occur|differ|need|take|exist|fit"
BARE = re.compile(r"^[ -](?:[a-z]+ )?([a-z]+s)\b")
"""A noun in the plural after a value: ` steps`, ` distinct labels`. The value should have been given to count()."""

NOT_NOUNS = {"is", "has", "was", "does", "as", "its", "this", "plus", "times", "s", "across", "less", "minus", "versus"}
UNITS = {"pixels", "bits", "seconds", "features"}  # after a size that is never 1
BY_HAND = {"wording.py"}


def test_odd_phrases_are_rare_and_never_shown() -> None:
    assert sum(map(prose.count_phrases, PATHS)) <= 40
    shown = [text for path in PATHS for text in prose.texts(path) if text.kind != "docstring"]
    assert len(shown) > 500  # the reader finds them
    assert [text for text in shown if prose.PHRASES.search(text.text)] == []


def test_identifiers_name_values() -> None:
    vague = {path.name: names for path in PATHS if (names := prose.vague_identifiers(path))}
    assert vague == {}


def test_nouns_agree() -> None:
    assert [count(n, "step") for n in (0, 1, 2, 4096)] == ["0 steps", "1 step", "2 steps", "4,096 steps"]
    assert [count(n, "class", "classes") for n in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert [agree(n, "is", "are") for n in (0, 1, 2)] == ["are", "is", "are"]
    assert [listed("abcd"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed("abcde", most=3) == "a, b, c and 2 more"


def grammar_calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in GRAMMAR:
            yield node.func.id, node


def words(call: ast.Call) -> list[str]:
    """The words that a call to count() or agree() chooses between; a variable stands in as `item`."""
    return [argument.value if isinstance(argument, ast.Constant) else "item" for argument in call.args[1:]]


def sentences(path: Path) -> Iterator[ast.JoinedStr]:
    """Every f-string that counts something."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr) and any(grammar_calls(node)):
            yield node


def render(sentence: ast.JoinedStr, n: int) -> str:
    """The f-string with `n` for everything that it counts, and X for every other value."""

    def value(part: ast.expr) -> str:
        if isinstance(part, ast.Constant):
            return str(part.value)
        if isinstance(part, ast.JoinedStr):
            return render(part, n)
        if isinstance(part, ast.FormattedValue):
            return value(part.value)
        if isinstance(part, ast.IfExp):
            return value(part.body)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in GRAMMAR:
            return GRAMMAR[part.func.id](n, *words(part))
        return "X"

    return "".join(value(part) for part in sentence.values)


COUNTING = [
    pytest.param(node, id=f"{path.parent.name}-{path.stem}-{node.lineno}") for path in PATHS for node in sentences(path)
]


@pytest.mark.parametrize("sentence", COUNTING)
def test_messages_that_count_agree_for_zero_one_and_two(sentence: ast.JoinedStr) -> None:
    nouns = [words(call) for name, call in grammar_calls(sentence) if name == "count"]
    singular = "|".join(re.escape(forms[0]) for forms in nouns)
    plural = "|".join(re.escape(forms[1] if len(forms) > 1 else forms[0] + "s") for forms in nouns)
    for n in (0, 1, 2):
        text = render(sentence, n)
        if not nouns:
            continue
        noun, other, wrong = (singular, plural, PLURAL) if n == 1 else (plural, singular, SINGULAR)
        assert re.search(rf"(?<!\d){n} ({noun})\b", text), text
        assert not re.search(rf"(?<!of ){n} ({noun}) ({wrong})\b", text), text
        assert noun == other or not re.search(rf"\b{n} ({other})(?!\w)", text), text


def test_there_are_messages_that_count() -> None:
    assert len(COUNTING) > 60


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_plurals_are_spelt(path: Path) -> None:
    """`class` and `entry` need their plural beside them: an s would not do."""
    for name, call in grammar_calls(ast.parse(path.read_text(encoding="utf-8"))):
        forms = words(call)
        if name == "count" and len(forms) == 1:
            assert not re.search(r"(s|x|z|ch|sh|[^aeiou]y)$", forms[0]), (forms, call.lineno)


@pytest.mark.parametrize("path", [p for p in PATHS if p.name not in BY_HAND], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_counts_go_through_wording(path: Path) -> None:
    """A value with thousands separated, or the length of something, before a plural noun could be 1."""
    bare = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for value, after in zip(node.values, node.values[1:]) if isinstance(node, ast.JoinedStr) else ():
            noun = BARE.search(str(after.value)) if isinstance(after, ast.Constant) else None
            if is_number(value) and noun and noun[1] not in NOT_NOUNS | UNITS:
                bare.append((node.lineno, prose.rendered(node)))
    assert bare == []


def is_number(node: ast.expr) -> bool:
    if not isinstance(node, ast.FormattedValue):
        return False
    spec = prose.rendered(node.format_spec) if node.format_spec else ""
    source = ast.unparse(node.value)
    return spec == "," or bool(re.fullmatch(r"len\(.*\)|(\w+\.)*n|(\w+\.)*n_\w+", source))
