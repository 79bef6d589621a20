"""The English of a tree: subject, verb, object, recipient, adjunct; relative clauses right after their noun."""

from clearformer.bundled.grammar.lexicon import Adverb, Number, Tense, Verb
from clearformer.bundled.grammar.trees import Action, Clause, Gap, Phrase, Quality, Somewhere, State, When

BE = {Tense.PRESENT: ("is", "are"), Tense.PAST: ("was", "were"), Tense.FUTURE: ("will be", "will be")}


def sentence(said: Clause) -> str:
    text = clause(said)
    return text[0].upper() + text[1:]


def join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def verb_group(verb: Verb, tense: Tense, number: Number) -> str:
    base, third, past, ing = verb.english.split()
    match tense:
        case Tense.PRESENT:
            return base if number else third
        case Tense.PROGRESSIVE:
            return join(BE[Tense.PRESENT][number], ing)
        case Tense.PAST:
            return past
        case Tense.USED_TO:
            return join("used to", base)
        case Tense.FUTURE:
            return join("will", base)


def noun_phrase(phrase: Phrase) -> str:
    is_plural = phrase.number is Number.MANY
    words = join(
        phrase.adjective.english if phrase.adjective else "", phrase.noun.plural if is_plural else phrase.noun.singular
    )
    determiner = phrase.determiner.english[phrase.number] or ""
    if determiner == "a" and words[0] in "aeiou":
        determiner = "an"
    return join(determiner, words, clause(phrase.relative) if phrase.relative else "")


def pronoun(gap: Gap, for_people: str) -> str:
    return for_people if "human" in gap.noun.kinds else "which"


def adjunct(said: Adverb | Somewhere | When | None) -> str:
    match said:
        case Adverb():
            return said.english
        case Somewhere(relation=relation, phrase=phrase):
            return join(relation.english, noun_phrase(phrase))
        case When(subject=subject, verb=verb):
            return join("when", noun_phrase(subject), verb_group(verb, Tense.PAST, subject.number))
    return ""


def clause(said: Clause) -> str:
    """A relative pronoun comes first, whether it is the subject or the object."""
    subject = pronoun(said.subject, "who") if isinstance(said.subject, Gap) else noun_phrase(said.subject)
    return state(said, subject) if isinstance(said, State) else action(said, subject)


def state(said: State, subject: str) -> str:
    match said.complement:
        case Quality(adjective=adjective, degree=degree):
            complement = join(degree, adjective.english)
        case Somewhere():
            complement = adjunct(said.complement)
    return join(subject, BE[said.tense][said.subject.number], complement)


def action(said: Action, subject: str) -> str:
    return join(
        pronoun(said.object, "whom") if isinstance(said.object, Gap) else "",
        subject,
        verb_group(said.verb, said.tense, said.subject.number),
        noun_phrase(said.object) if isinstance(said.object, Phrase) else "",
        join("to", noun_phrase(said.recipient)) if said.recipient else "",
        adjunct(said.adjunct),
    )
