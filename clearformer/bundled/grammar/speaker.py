"""Draws random sentence trees that make sense.

Three restrictions make the translation a function of the English sentence, at every depth: a clause has at most one
relative clause; a clause whose object has a relative clause has nothing after it, so that "when the king arrived"
always belongs to the nearest verb; and a verb whose past looks like its present (*read*) is never in the past with a
plural subject.
"""

from dataclasses import replace
from functools import cache
from random import Random

from clearformer.bundled.grammar.lexicon import (
    ADJECTIVES,
    ANIMATE,
    BARE,
    DETERMINERS,
    INSIDE,
    MANNERS,
    MOODS,
    NEAR,
    NOUNS,
    ON,
    THE,
    TIMES,
    UNDER,
    VERBS,
    Adjective,
    Adverb,
    Determiner,
    Noun,
    Number,
    Relation,
    Tense,
    Verb,
)
from clearformer.bundled.grammar.trees import Action, Clause, Gap, Phrase, Quality, Somewhere, State, When

EVENTS = tuple(verb for verb in VERBS if verb.base in ("arrive", "come", "fall", "laugh"))


def fits(noun: Noun, kinds: str) -> bool:
    return not set(noun.kinds.split()).isdisjoint(kinds.split())


@cache
def nouns(kinds: str, depth: int = 0) -> tuple[Noun, ...]:
    """Return the nouns of these kinds that can head `depth` nested relative clauses; above 1, only animate ones."""
    return tuple(noun for noun in NOUNS if fits(noun, kinds) and (depth < 2 or fits(noun, ANIMATE)))


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in ADJECTIVES if fits(noun, adjective.kinds))


@cache
def verbs_by(noun: Noun, depth: int = 0) -> tuple[Verb, ...]:
    """Return the verbs of a subject. If depth > 0, a verb needs an object that can head `depth` relative clauses."""
    able = (verb for verb in VERBS if fits(noun, verb.subjects))
    return tuple(verb for verb in able if not depth or (not verb.recipient and nouns(verb.objects, depth)))


@cache
def verbs_to(noun: Noun) -> tuple[Verb, ...]:
    """Return the verbs that a noun can be the object of."""
    return tuple(verb for verb in VERBS if not verb.recipient and fits(noun, verb.objects))


@cache
def whereabouts(noun: Noun) -> tuple[Relation, ...]:
    """Return where a noun can be: people and animals in places, small things on or under furniture, others nowhere."""
    is_small = fits(noun, "food pages cloth toy blade key")
    return (INSIDE, UNDER, NEAR) if fits(noun, ANIMATE) else (ON, UNDER) if is_small else ()


@cache
def determiners(noun: Noun, number: Number) -> tuple[Determiner, ...]:
    """Return the determiners that a noun can take. *The* is repeated, so that it is drawn about half the time."""
    able = [d for d in DETERMINERS if d.english[number] is not None and (noun.plural or None not in d.english)]
    return (THE,) * (len(able) - 2) + tuple(able)


class Speaker:
    """Draws random sentence trees. `detail` scales how often adjectives and adjuncts occur: less in deep sentences."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.detail = rng, 1.0

    def sentence(self, depth: int) -> Clause:
        """Draw a sentence with exactly `depth` nested relative clauses, on its subject or on its object."""
        self.detail = 0.5**depth
        if self.happens(0.2):
            return self.state(self.phrase(self.noun("human animal food drink thing", depth), depth))
        verb = self.rng.choice(VERBS)
        is_on_object = depth > 0 and not verb.recipient and nouns(verb.objects, depth) and self.happens(0.5)
        on_subject, on_object = (0, depth) if is_on_object else (depth, 0)
        subject = self.phrase(self.noun(verb.subjects, on_subject), on_subject)
        return self.action(subject, verb, on_object)

    def relative(self, head: Gap, depth: int) -> Clause:
        """Draw a relative clause of `head`. If the head is its subject, its object may have one, too."""
        if depth > 1:
            return self.action(head, self.rng.choice(verbs_by(head.noun, depth - 1)), depth - 1)
        as_subject, as_object = verbs_by(head.noun), verbs_to(head.noun)
        if self.happens(0.2) or not (as_subject or as_object):
            return self.state(head)
        if not as_subject or (as_object and self.happens(0.4)):
            verb = self.rng.choice(as_object)
            subject = self.phrase(self.noun(verb.subjects, besides=head.noun))
            tense = self.tense(verb, subject.number)
            return Action(subject, verb, tense, head, adjunct=self.adjunct(verb, tense))
        return self.action(head, self.rng.choice(as_subject))

    def action(self, subject: Phrase | Gap, verb: Verb, depth: int = 0) -> Action:
        """Draw an action of the subject. Its object, if any, heads `depth` relative clauses."""
        tense = self.tense(verb, subject.number)
        patient = self.phrase(self.noun(verb.objects, depth, subject.noun), depth) if verb.objects else None
        if patient and not depth and (patient.number or not patient.noun.plural) and self.happens(0.2):
            patient = replace(patient, determiner=BARE)
        recipient = self.phrase(self.noun(verb.recipient, besides=subject.noun)) if verb.recipient else None
        adjunct = None if depth or recipient else self.adjunct(verb, tense)
        return Action(subject, verb, tense, patient, recipient, adjunct)

    def state(self, subject: Phrase | Gap) -> State:
        tense = self.rng.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PAST, Tense.FUTURE))
        if (places := whereabouts(subject.noun)) and self.happens(0.3):
            return State(subject, tense, self.somewhere(self.rng.choice(places)))
        used = subject.adjective if isinstance(subject, Phrase) else None
        adjective = self.rng.choice([each for each in adjectives(subject.noun) if each is not used])
        degrees = ("", "", "very", "already") if adjective in MOODS else ("", "very")
        return State(subject, tense, Quality(adjective, self.rng.choice(degrees)))

    def phrase(self, noun: Noun, depth: int = 0, number: Number | None = None) -> Phrase:
        if number is None:
            number = Number.MANY if noun.plural and self.happens(0.4) else Number.ONE
        determiner = self.rng.choice(determiners(noun, number))
        fitting = adjectives(noun)
        adjective = self.rng.choice(fitting) if fitting and self.happens(0.3 * self.detail) else None
        relative = self.relative(Gap(noun, number), depth) if depth else None
        return Phrase(noun, number, determiner, adjective, relative)

    def adjunct(self, verb: Verb, tense: Tense) -> Adverb | Somewhere | When | None:
        """Draw an adverb of time or manner, a place or companion, a past event, or nothing (None)."""
        if not self.happens(0.4 * self.detail):
            return None
        if self.happens(0.4):
            return self.somewhere(self.rng.choice(verb.relations))
        if tense is Tense.PAST and verb not in EVENTS and self.happens(0.4):
            event = self.rng.choice(EVENTS)
            return When(self.phrase(self.noun("human")), event)
        adverbs = TIMES if verb.english.endswith("-") else TIMES + MANNERS
        return self.rng.choice([adverb for adverb in adverbs if tense in adverb.tenses])

    def somewhere(self, relation: Relation) -> Somewhere:
        # A destination is singular: the bare oblique is not idiomatic in the plural.
        number = None if relation.hindi else Number.ONE
        return Somewhere(relation, self.phrase(self.noun(relation.kinds), number=number))

    def tense(self, verb: Verb, number: Number) -> Tense:
        base, _, past, ing = verb.english.split()
        impossible = {Tense.PROGRESSIVE} if ing == "-" else set()
        if past == base and number is Number.MANY:
            impossible.add(Tense.PAST)
        return self.rng.choice([tense for tense in Tense if tense not in impossible])

    def noun(self, kinds: str, depth: int = 0, besides: Noun | None = None) -> Noun:
        return self.rng.choice([noun for noun in nouns(kinds, depth) if noun is not besides])

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability
