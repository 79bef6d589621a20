"""Language-independent sentence trees.

    Action(Phrase(cat), eat, PRESENT, Phrase(mouse))    "The cat eats the mouse"    "बिल्ली चूहा खाती है"

A relative clause is an ordinary clause with a `Gap` in place of its head noun, as subject or as object.
English and Hindi are two functions of the same tree, so a pair is always a faithful translation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from clearformer.bundled.grammar.lexicon import THE, Adjective, Adverb, Determiner, Noun, Number, Relation, Tense, Verb


@dataclass(frozen=True)
class Gap:
    """The place of the head noun inside its relative clause: *who*, *whom*, *which*."""

    noun: Noun
    number: Number


@dataclass(frozen=True)
class Phrase:
    """A noun phrase."""

    noun: Noun
    number: Number = Number.ONE
    determiner: Determiner = THE
    adjective: Adjective | None = None
    relative: "Clause | None" = None


@dataclass(frozen=True)
class Somewhere:
    """A place, a companion or an instrument: "in the house", "with a friend"."""

    relation: Relation
    phrase: Phrase


@dataclass(frozen=True)
class When:
    """An event in the past: "when the king arrived"."""

    subject: Phrase
    verb: Verb


@dataclass(frozen=True)
class Quality:
    """A predicate adjective: "tired", "already tired". The degree is a key of DEGREES, or empty."""

    adjective: Adjective
    degree: str = ""


@dataclass(frozen=True)
class Action:
    subject: Phrase | Gap
    verb: Verb
    tense: Tense
    object: Phrase | Gap | None = None
    recipient: Phrase | None = None
    adjunct: Adverb | Somewhere | When | None = None


@dataclass(frozen=True)
class State:
    """A clause with *to be* and a quality or place. The tense is present, past or future."""

    subject: Phrase | Gap
    tense: Tense
    complement: Quality | Somewhere


Clause = Action | State


def phrases(clause: Clause) -> Iterator[Phrase | Gap]:
    """Yield the noun phrases of a clause, without the noun phrases inside its relative clauses."""
    yield clause.subject
    match clause:
        case State(complement=Somewhere(phrase=place)):
            yield place
        case Action():
            yield from (phrase for phrase in (clause.object, clause.recipient) if phrase is not None)
            match clause.adjunct:
                case Somewhere(phrase=phrase) | When(subject=phrase):
                    yield phrase


def relatives(clause: Clause) -> list[Clause]:
    """Return the relative clauses directly inside a clause, without deeper ones."""
    return [phrase.relative for phrase in phrases(clause) if isinstance(phrase, Phrase) and phrase.relative]


def depth(clause: Clause) -> int:
    """Return how deeply relative clauses are nested; 0 if there are none."""
    return max((1 + depth(inner) for inner in relatives(clause)), default=0)


def combinations(clause: Clause) -> set[tuple[str, str]]:
    """Return all (adjective, noun) and (verb, object) combinations of a sentence, as English lemmas."""
    pairs = {pair for inner in relatives(clause) for pair in combinations(inner)}
    for phrase in phrases(clause):
        if isinstance(phrase, Phrase) and phrase.adjective:
            pairs.add((phrase.adjective.english, phrase.noun.singular))
    match clause:
        case State(complement=Quality(adjective=adjective)):
            pairs.add((adjective.english, clause.subject.noun.singular))
        case Action(object=Phrase() | Gap() as patient):
            pairs.add((clause.verb.base, patient.noun.singular))
    return pairs
