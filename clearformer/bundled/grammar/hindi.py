"""Hindi sentences from trees: subject, adjunct, recipient, object, verb, then the relative clause of the object.

    The boy read two books yesterday    लड़के ने कल दो किताबें पढ़ीं

Each function states the rule it applies. The verb of the example is perfective, so its subject takes ने and the
oblique case (लड़के), and the verb agrees with the unmarked object instead (feminine plural: पढ़ीं).
"""

from clearformer.bundled.grammar.lexicon import DEGREES, THAT, THE, Adverb, Case, Gender, Noun, Number, Tense, Verb
from clearformer.bundled.grammar.trees import Action, Clause, Gap, Phrase, Quality, Somewhere, State, When

# Masculine singular ending -> masculine plural or oblique ending, feminine ending. The first match is used.
AGREEMENT = (("िया", "िए", "ी"), ("या", "ए", "ई"), ("आ", "ए", "ई"), ("ा", "े", "ी"))

# Stem -> perfective masculine singular, subjunctive; all other stems are regular.
IRREGULAR = {"पी": ("पिया", "पिए"), "दे": ("दिया", "दे"), "जा": ("गया", "जाए"), "कर": ("किया", "करे"), "हो": ("हुआ", "हो")}

# A relative pronoun and its postposition merge.
RELATIVE = {
    "": ("जो", "जो"),
    "ने": ("जिसने", "जिन्होंने"),
    "को": ("जिसे", "जिन्हें"),
    "से": ("जिससे", "जिनसे"),
    "पर": ("जिस पर", "जिन पर"),
}

VOWELS = "अआइईउऊएऐओऔािीुूेैोौ"


def join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def decline(noun: Noun, number: Number, case: Case = Case.DIRECT) -> str:
    """Decline a noun: the paradigm gives the ending for each number and case."""
    endings = noun.paradigm.endings
    return noun.hindi.removesuffix(endings[0]) + endings[2 * case + number]


def agree(words: str, gender: Gender, number: Number, case: Case = Case.DIRECT) -> str:
    """Inflect words in ा: अच्छा masculine singular, अच्छे masculine plural or oblique, अच्छी feminine."""
    if gender == "m" and number is Number.ONE and case is Case.DIRECT:
        return words

    def inflect(word: str) -> str:
        for ending, masculine, feminine in AGREEMENT:
            if word.endswith(ending):
                return word.removesuffix(ending) + (masculine if gender == "m" else feminine)
        return word

    return " ".join(inflect(word) for word in words.split())


def nasal(word: str, gender: Gender, number: Number) -> str:
    """A finite past form nasalises its last vowel in the feminine plural: थी, थीं; पढ़ी, पढ़ीं; खाई, खाईं."""
    return word + "ं" if gender == "f" and number is Number.MANY else word


def principal_parts(stem: str) -> tuple[str, str]:
    """The perfective and the subjunctive of a stem: पढ़, पढ़ा, पढ़े after a consonant; खा, खाया, खाए after a vowel."""
    *before, last = stem.split()
    regular = (last + "या", last + "ए") if last[-1] in VOWELS else (last + "ा", last + "े")
    perfective, subjunctive = IRREGULAR.get(last, regular)
    return join(*before, perfective), join(*before, subjunctive)


def conjugate(stem: str, tense: Tense, gender: Gender, number: Number) -> str:
    """Return the verb group in the gender and number of the noun it agrees with."""
    perfective, subjunctive = principal_parts(stem)
    match tense:
        case Tense.PRESENT:
            return join(agree(stem + "ता", gender, number), be(tense, gender, number))
        case Tense.PROGRESSIVE:
            return join(stem, agree("रहा", gender, number), be(Tense.PRESENT, gender, number))
        case Tense.PAST:
            return nasal(agree(perfective, gender, number), gender, number)
        case Tense.USED_TO:
            return join(agree(stem + "ता", gender, number), be(Tense.PAST, gender, number))
        case Tense.FUTURE:
            plural = "" if number is Number.ONE else "ँ" if subjunctive.endswith("ए") else "ं"
            return subjunctive + plural + agree("गा", gender, number)


def be(tense: Tense, gender: Gender, number: Number) -> str:
    """Conjugate होना as a copula: है हैं; था थे थी थीं; होगा होंगे होगी होंगी."""
    match tense:
        case Tense.PRESENT:
            return ("है", "हैं")[number]
        case Tense.PAST:
            return nasal(agree("था", gender, number), gender, number)
        case _:
            return conjugate("हो", Tense.FUTURE, gender, number)


def noun_phrase(phrase: Phrase | Gap, postposition: str = "", case: Case = Case.DIRECT) -> str:
    """Write a noun phrase: determiner, adjective, noun, postposition. All are oblique before a postposition.

    *The* is not translated, except as वह before a noun with a relative clause: वह आदमी जिसने गाड़ी खींची.
    """
    if isinstance(phrase, Gap):
        return RELATIVE[postposition][phrase.number]
    case = Case.OBLIQUE if postposition else case
    determiner = THAT if phrase.determiner is THE and phrase.relative else phrase.determiner
    form = (phrase.noun.paradigm.gender, phrase.number, case)
    return join(
        agree(determiner.hindi[2 * case + phrase.number], *form),
        agree(phrase.adjective.hindi, *form) if phrase.adjective else "",
        decline(phrase.noun, phrase.number, case),
        postposition,
    )


def relative(phrase: Phrase | Gap | None) -> str:
    return clause(phrase.relative) if isinstance(phrase, Phrase) and phrase.relative else ""


def patient_marker(verb: Verb, phrase: Phrase | Gap) -> str:
    """Mark the object (differential object marking): people always take को, animals if definite, things never."""
    if verb.patient != "को" or "human" in phrase.noun.kinds:
        return verb.patient
    # Indefinite determiners ("a", "two", "three" or none) lack the singular or the plural in English.
    is_definite = isinstance(phrase, Gap) or None not in phrase.determiner.english
    return "को" if "animal" in phrase.noun.kinds and is_definite else ""


def adjunct(node: Adverb | Somewhere | When | None) -> str:
    """Write the adjunct. "When the king arrived" is an infinitive with पर: राजा के पहुँचने पर."""
    match node:
        case Adverb():
            return node.hindi
        case Somewhere(relation=relation, phrase=phrase):
            return noun_phrase(phrase, relation.hindi, Case.OBLIQUE)
        case When(subject=subject, verb=verb):
            return join(noun_phrase(subject, "के"), verb.stem + "ने", "पर")
    return ""


def action(node: Action) -> str:
    """Write an action. Its verb agrees with the subject, or with the object if the subject takes ने.

    If both are marked, it agrees with neither and is masculine singular: लड़कियों ने बिल्लियों को देखा. A relative
    pronoun comes first, even as object. A subject is directly followed by its relative clause; the relative clause of
    an object follows the verb.
    """
    agent = node.verb.agent if node.tense is Tense.PAST else ""
    patient = patient_marker(node.verb, node.object) if node.object else ""
    governor = node.object if agent and not patient else None if agent else node.subject
    gender: Gender = governor.noun.paradigm.gender if governor else "m"
    number = governor.number if governor else Number.ONE

    object_phrase = noun_phrase(node.object, patient) if node.object else ""
    is_fronted = isinstance(node.object, Gap)
    return join(
        object_phrase if is_fronted else "",
        noun_phrase(node.subject, agent),
        relative(node.subject),
        adjunct(node.adjunct),
        noun_phrase(node.recipient, "को") if node.recipient else "",
        "" if is_fronted else object_phrase,
        conjugate(node.verb.stem, node.tense, gender, number),
        relative(node.object),
    )


def state(node: State) -> str:
    """A predicate adjective agrees with the subject, like an attributive one; so does the copula."""
    gender, number = node.subject.noun.paradigm.gender, node.subject.number
    match node.complement:
        case Quality(adjective=adjective, degree=degree):
            complement = join(DEGREES.get(degree, ""), agree(adjective.hindi, gender, number))
        case Somewhere():
            complement = adjunct(node.complement)
    return join(noun_phrase(node.subject), relative(node.subject), complement, be(node.tense, gender, number))


def clause(node: Clause) -> str:
    return action(node) if isinstance(node, Action) else state(node)
