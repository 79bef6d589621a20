"""English sentences from trees: subject, verb, object, recipient, adjunct. A relative clause follows its noun."""

from clearformer.bundled.grammar.lexicon import Adverb, Number, Tense, Verb
from clearformer.bundled.grammar.trees import Action, Clause, Gap, Phrase, Quality, Somewhere, State, When

BE = {Tense.PRESENT: ("is", "are"), Tense.PAST: ("was", "were"), Tense.FUTURE: ("will be", "will be")}


def sentence(node: Clause) -> str:
    text = clause(node)
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


def adjunct(node: Adverb | Somewhere | When | None) -> str:
    match node:
        case Adverb():
            return node.english
        case Somewhere(relation=relation, phrase=phrase):
            return join(relation.english, noun_phrase(phrase))
        case When(subject=subject, verb=verb):
            return join("when", noun_phrase(subject), verb_group(verb, Tense.PAST, subject.number))
    return ""


def clause(node: Clause) -> str:
    """Write a clause in English. A relative pronoun comes first, whether it is the subject or the object."""
    subject = pronoun(node.subject, "who") if isinstance(node.subject, Gap) else noun_phrase(node.subject)
    return state(node, subject) if isinstance(node, State) else action(node, subject)


def state(node: State, subject: str) -> str:
    match node.complement:
        case Quality(adjective=adjective, degree=degree):
            complement = join(degree, adjective.english)
        case Somewhere():
            complement = adjunct(node.complement)
    return join(subject, BE[node.tense][node.subject.number], complement)


def action(node: Action, subject: str) -> str:
    return join(
        pronoun(node.object, "whom") if isinstance(node.object, Gap) else "",
        subject,
        verb_group(node.verb, node.tense, node.subject.number),
        noun_phrase(node.object) if isinstance(node.object, Phrase) else "",
        join("to", noun_phrase(node.recipient)) if node.recipient else "",
        adjunct(node.adjunct),
    )
