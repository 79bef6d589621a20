"""The Hindi of a tree: subject, adjunct, recipient, object, verb; then the relative clause of the object.

    The boy read two books yesterday    लड़के ने कल दो किताबें पढ़ीं

Each function states the rule it applies. The verb of that example is perfective, so its subject takes ने
and goes oblique (लड़के), and the verb agrees instead with the unmarked object (feminine plural: पढ़ीं).
"""

from clearformer.bundled.grammar.lexicon import DEGREES, THAT, THE, Adverb, Case, Gender, Noun, Number, Tense, Verb
from clearformer.bundled.grammar.trees import Action, Clause, Gap, Phrase, Quality, Somewhere, State, When

# Masculine singular ending -> masculine plural or oblique, feminine. The first that fits is used.
AGREEMENT = (("िया", "िए", "ी"), ("या", "ए", "ई"), ("आ", "ए", "ई"), ("ा", "े", "ी"))

# Stem -> perfective masculine singular, subjunctive; the others are regular.
IRREGULAR = {"पी": ("पिया", "पिए"), "दे": ("दिया", "दे"), "जा": ("गया", "जाए"), "कर": ("किया", "करे"), "हो": ("हुआ", "हो")}

# The postposition of a relative pronoun melts into it.
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
    """A noun changes its ending for number and case, after the paradigm it follows."""
    endings = noun.paradigm.endings
    return noun.hindi.removesuffix(endings[0]) + endings[2 * case + number]


def agree(words: str, gender: Gender, number: Number, case: Case = Case.DIRECT) -> str:
    """Adjectives and participles in ा: अच्छा for one masculine, अच्छे for many or oblique, अच्छी for any feminine."""
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
    """The verb group, agreeing in gender and number with whatever governs it."""
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
    """होना as a copula: है हैं; था थे थी थीं; होगा होंगे होगी होंगी."""
    match tense:
        case Tense.PRESENT:
            return ("है", "हैं")[number]
        case Tense.PAST:
            return nasal(agree("था", gender, number), gender, number)
        case _:
            return conjugate("हो", Tense.FUTURE, gender, number)


def noun_phrase(phrase: Phrase | Gap, postposition: str = "", case: Case = Case.DIRECT) -> str:
    """Determiner, adjective, noun, postposition; before a postposition, oblique throughout.

    *The* is silent, except that a noun with a relative clause is announced by वह: वह आदमी जिसने गाड़ी खींची.
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
    """Differential marking: को falls on people always, on animals when they are definite, on things never."""
    if verb.patient != "को" or "human" in phrase.noun.kinds:
        return verb.patient
    # An indefinite is "a", "two", "three" or nothing: what English cannot put before both one and many.
    is_definite = isinstance(phrase, Gap) or None not in phrase.determiner.english
    return "को" if "animal" in phrase.noun.kinds and is_definite else ""


def adjunct(said: Adverb | Somewhere | When | None) -> str:
    """Between subject and object. "When the king arrived" is an infinitive with पर: राजा के पहुँचने पर."""
    match said:
        case Adverb():
            return said.hindi
        case Somewhere(relation=relation, phrase=phrase):
            return noun_phrase(phrase, relation.hindi, Case.OBLIQUE)
        case When(subject=subject, verb=verb):
            return join(noun_phrase(subject, "के"), verb.stem + "ने", "पर")
    return ""


def action(said: Action) -> str:
    """The verb agrees with its subject. If that has ने, with the object; if that is marked too, with neither.

    Agreeing with neither is being masculine singular: लड़कियों ने बिल्लियों को देखा. A relative pronoun comes first
    even as object. The relative clause of a subject follows it at once, that of an object waits for the verb.
    """
    agent = said.verb.agent if said.tense is Tense.PAST else ""
    patient = patient_marker(said.verb, said.object) if said.object else ""
    governor = said.object if agent and not patient else None if agent else said.subject
    gender: Gender = governor.noun.paradigm.gender if governor else "m"
    number = governor.number if governor else Number.ONE

    undergone = noun_phrase(said.object, patient) if said.object else ""
    is_fronted = isinstance(said.object, Gap)
    return join(
        undergone if is_fronted else "",
        noun_phrase(said.subject, agent),
        relative(said.subject),
        adjunct(said.adjunct),
        noun_phrase(said.recipient, "को") if said.recipient else "",
        "" if is_fronted else undergone,
        conjugate(said.verb.stem, said.tense, gender, number),
        relative(said.object),
    )


def state(said: State) -> str:
    """A predicate adjective agrees with the subject like one before the noun; so does the copula."""
    gender, number = said.subject.noun.paradigm.gender, said.subject.number
    match said.complement:
        case Quality(adjective=adjective, degree=degree):
            complement = join(DEGREES.get(degree, ""), agree(adjective.hindi, gender, number))
        case Somewhere():
            complement = adjunct(said.complement)
    return join(noun_phrase(said.subject), relative(said.subject), complement, be(said.tense, gender, number))


def clause(said: Clause) -> str:
    return action(said) if isinstance(said, Action) else state(said)
