"""The lexicon: the words in both languages, their inflection, and the words they combine with.

    Noun("cart", "carts", "गाड़ी", LADKI, "vehicle")    a cart declines like लड़की, so it is feminine
    Verb("pull pulls pulled pulling", "खींच", "human", "vehicle", agent="ने")    people pull vehicles

A *kind* ("human", "fruit") restricts which nouns a verb, an adjective or a preposition combines with. Several kinds
are separated by spaces, and a noun needs only one of them. Hindi is spelt in Unicode NFC, in which a letter with a dot
below is two code points.
"""

from enum import Enum, IntEnum
from typing import Literal, NamedTuple

Gender = Literal["m", "f"]


class Number(IntEnum):
    ONE, MANY = 0, 1


class Case(IntEnum):
    """The case of a noun: direct for subjects and unmarked objects, oblique before postpositions."""

    DIRECT, OBLIQUE = 0, 1


class Tense(Enum):
    """The English tenses. The comments name the Hindi aspect of each."""

    PRESENT = "eats"  # habitual
    PROGRESSIVE = "is eating"  # continuous
    PAST = "ate"  # perfective: the only tense with ergative subjects
    USED_TO = "used to eat"  # past habitual
    FUTURE = "will eat"


class Paradigm(NamedTuple):
    """A declension: a gender and the endings of direct singular, direct plural, oblique singular, oblique plural."""

    gender: Gender
    endings: tuple[str, str, str, str]


LADKA = Paradigm("m", ("ा", "े", "े", "ों"))
GHAR = Paradigm("m", ("", "", "", "ों"))
AADMI = Paradigm("m", ("ी", "ी", "ी", "ियों"))
RAJA = Paradigm("m", ("ा", "ा", "ा", "ाओं"))
CHAKU = Paradigm("m", ("ू", "ू", "ू", "ुओं"))
LADKI = Paradigm("f", ("ी", "ियाँ", "ी", "ियों"))
KITAB = Paradigm("f", ("", "ें", "", "ों"))
CHIDIYA = Paradigm("f", ("िया", "ियाँ", "िया", "ियों"))


class Noun(NamedTuple):
    """A noun in both languages. `hindi` is the direct singular. A mass noun has no English plural."""

    singular: str
    plural: str
    hindi: str
    paradigm: Paradigm
    kinds: str


class Adjective(NamedTuple):
    """An adjective; `hindi` is the masculine direct singular. Adjectives in ा agree with their noun."""

    english: str
    hindi: str
    kinds: str


class Determiner(NamedTuple):
    """A determiner: its English singular and plural (None where there is no such form) and its four Hindi forms."""

    english: tuple[str | None, str | None]
    hindi: tuple[str, str, str, str]


class Adverb(NamedTuple):
    english: str
    hindi: str
    tenses: tuple[Tense, ...]


class Relation(NamedTuple):
    """An English preposition and its Hindi postposition, which is empty for a destination (a bare oblique)."""

    english: str
    hindi: str
    kinds: str


INSIDE = Relation("in", "में", "room place")
ON = Relation("on", "पर", "surface")
UNDER = Relation("under", "के नीचे", "cover")
NEAR = Relation("near", "के पास", "cover place landmark")
COMPANY = Relation("with", "के साथ", "human")
BLADE = Relation("with", "से", "blade")
CORD = Relation("with", "से", "cord")
KEY = Relation("with", "से", "key")
SOURCE = Relation("from", "से", "place")
DESTINATION = Relation("to", "", "place")

ANYWHERE = (INSIDE, UNDER, NEAR, COMPANY)


class Verb(NamedTuple):
    """A verb: its English base, third person, past and -ing form ("-" for verbs of state), and its Hindi stem.

    `agent` marks the subject in the perfective: ने for nearly every verb with an object, but not for लाना.
    `patient` marks the object: को only if the object is animate, से and पर always.
    `recipient` is the kind of the recipient, for verbs such as *give*.
    """

    english: str
    stem: str
    subjects: str
    objects: str = ""
    agent: str = ""
    patient: str = ""
    recipient: str = ""
    relations: tuple[Relation, ...] = ANYWHERE

    @property
    def base(self) -> str:
        return self.english.split()[0]


NOUNS = (
    Noun("boy", "boys", "लड़का", LADKA, "human"),
    Noun("child", "children", "बच्चा", LADKA, "human"),
    Noun("man", "men", "आदमी", AADMI, "human grown"),
    Noun("soldier", "soldiers", "सिपाही", AADMI, "human grown"),
    Noun("king", "kings", "राजा", RAJA, "human grown"),
    Noun("farmer", "farmers", "किसान", GHAR, "human grown"),
    Noun("teacher", "teachers", "अध्यापक", GHAR, "human grown"),
    Noun("friend", "friends", "दोस्त", GHAR, "human"),
    Noun("girl", "girls", "लड़की", LADKI, "human"),
    Noun("queen", "queens", "रानी", LADKI, "human grown"),
    Noun("woman", "women", "औरत", KITAB, "human grown"),
    Noun("sister", "sisters", "बहन", KITAB, "human"),
    Noun("dog", "dogs", "कुत्ता", LADKA, "animal predator"),
    Noun("lion", "lions", "शेर", GHAR, "animal predator"),
    Noun("cat", "cats", "बिल्ली", LADKI, "animal predator"),
    Noun("mouse", "mice", "चूहा", LADKA, "animal prey"),
    Noun("bird", "birds", "चिड़िया", CHIDIYA, "animal prey"),
    Noun("horse", "horses", "घोड़ा", LADKA, "animal draught"),
    Noun("elephant", "elephants", "हाथी", AADMI, "animal draught"),
    Noun("goat", "goats", "बकरी", LADKI, "animal cattle"),
    Noun("cow", "cows", "गाय", KITAB, "animal cattle"),
    Noun("apple", "apples", "सेब", GHAR, "food fruit"),
    Noun("mango", "mangoes", "आम", GHAR, "food fruit"),
    Noun("banana", "bananas", "केला", LADKA, "food fruit"),
    Noun("potato", "potatoes", "आलू", CHAKU, "food vegetable"),
    Noun("carrot", "carrots", "गाजर", KITAB, "food vegetable"),
    Noun("milk", "", "दूध", GHAR, "drink"),
    Noun("water", "", "पानी", AADMI, "drink"),
    Noun("tea", "", "चाय", KITAB, "drink"),
    Noun("book", "books", "किताब", KITAB, "thing text pages"),
    Noun("letter", "letters", "चिट्ठी", LADKI, "thing text long"),
    Noun("story", "stories", "कहानी", LADKI, "text long"),
    Noun("cart", "carts", "गाड़ी", LADKI, "thing vehicle"),
    Noun("boat", "boats", "नाव", KITAB, "thing vehicle"),
    Noun("rope", "ropes", "रस्सी", LADKI, "thing long cord"),
    Noun("knife", "knives", "चाकू", CHAKU, "thing blade"),
    Noun("key", "keys", "चाबी", LADKI, "thing key"),
    Noun("door", "doors", "दरवाज़ा", LADKA, "thing lid"),
    Noun("window", "windows", "खिड़की", LADKI, "thing lid fragile"),
    Noun("chair", "chairs", "कुर्सी", LADKI, "thing fragile surface"),
    Noun("table", "tables", "मेज़", KITAB, "thing fragile surface cover"),
    Noun("shirt", "shirts", "कमीज़", KITAB, "thing cloth"),
    Noun("ball", "balls", "गेंद", KITAB, "thing toy"),
    Noun("flower", "flowers", "फूल", GHAR, "toy"),
    Noun("tree", "trees", "पेड़", GHAR, "cover tall"),
    Noun("river", "rivers", "नदी", LADKI, "landmark long"),
    Noun("road", "roads", "सड़क", KITAB, "landmark long surface"),
    Noun("room", "rooms", "कमरा", LADKA, "room"),
    Noun("garden", "gardens", "बग़ीचा", LADKA, "room"),
    Noun("village", "villages", "गाँव", GHAR, "place"),
    Noun("city", "cities", "शहर", GHAR, "place"),
    Noun("market", "markets", "बाज़ार", GHAR, "place"),
)

ANIMATE = "human animal"
GOODS = "fruit vegetable thing toy"
ANYTHING = "human animal fruit vegetable thing toy tall"

VERBS = (
    Verb("sleep sleeps slept sleeping", "सो", ANIMATE, relations=(*ANYWHERE, ON)),
    Verb("run runs ran running", "दौड़", ANIMATE, relations=(*ANYWHERE, ON)),
    Verb("walk walks walked walking", "चल", ANIMATE, relations=(*ANYWHERE, ON)),
    Verb("fall falls fell falling", "गिर", "human animal thing fruit", relations=(ON, UNDER, INSIDE)),
    Verb("laugh laughs laughed laughing", "हँस", "human"),
    Verb("cry cries cried crying", "रो", "human"),
    Verb("come comes came coming", "आ", ANIMATE, relations=(SOURCE, COMPANY)),
    Verb("go goes went going", "जा", ANIMATE, relations=(DESTINATION, COMPANY)),
    Verb("arrive arrives arrived arriving", "पहुँच", ANIMATE, relations=(COMPANY,)),
    Verb("eat eats ate eating", "खा", ANIMATE, "food", agent="ने"),
    Verb("eat eats ate eating", "खा", "predator", "prey", agent="ने"),
    Verb("drink drinks drank drinking", "पी", ANIMATE, "drink", agent="ने"),
    Verb("see sees saw -", "देख", ANIMATE, ANYTHING, agent="ने", patient="को"),
    Verb("catch catches caught catching", "पकड़", "human predator", "prey cattle toy", agent="ने", patient="को"),
    Verb("call calls called calling", "बुला", "human", "human", agent="ने", patient="को"),
    Verb("meet meets met meeting", "मिल", "human", "human", patient="से"),
    Verb("fear fears feared -", "डर", ANIMATE, ANIMATE, patient="से"),
    Verb("climb climbs climbed climbing", "चढ़", "human", "tall vehicle draught", patient="पर", relations=(COMPANY,)),
    Verb("read reads read reading", "पढ़", "human", "text", agent="ने"),
    Verb("write writes wrote writing", "लिख", "human", "text", agent="ने"),
    Verb("pull pulls pulled pulling", "खींच", "human draught", "vehicle cord lid", agent="ने", relations=(CORD,)),
    Verb("open opens opened opening", "खोल", "human", "lid", agent="ने", relations=(KEY,)),
    Verb("open opens opened opening", "खोल", "human", "pages", agent="ने"),
    Verb("close closes closed closing", "बंद कर", "human", "lid", agent="ने", relations=(KEY,)),
    Verb("close closes closed closing", "बंद कर", "human", "pages", agent="ने"),
    Verb("chop chops chopped chopping", "काट", "human", "fruit vegetable tall cord", agent="ने", relations=(BLADE,)),
    Verb("wash washes washed washing", "धो", "human", "cloth vehicle vegetable", agent="ने"),
    Verb("break breaks broke breaking", "तोड़", "human", "fragile toy", agent="ने"),
    Verb("buy buys bought buying", "ख़रीद", "human", "fruit vegetable thing toy cattle", agent="ने"),
    Verb("sell sells sold selling", "बेच", "human", "fruit vegetable thing toy cattle", agent="ने"),
    Verb("bring brings brought bringing", "ला", "human", GOODS, relations=(SOURCE, COMPANY)),
    Verb("give gives gave giving", "दे", "human", GOODS, agent="ने", recipient="human"),
    Verb("send sends sent sending", "भेज", "human", "fruit text cloth toy", agent="ने", recipient="human"),
)

MOODS = (
    Adjective("hungry", "भूखा", ANIMATE),
    Adjective("tired", "थका हुआ", ANIMATE),
    Adjective("happy", "ख़ुश", ANIMATE),
    Adjective("sad", "उदास", ANIMATE),
)

QUALITIES = (
    Adjective("good", "अच्छा", "human animal food drink thing text"),
    Adjective("small", "छोटा", "human animal food thing toy tall place room"),
    Adjective("big", "बड़ा", "animal food thing toy tall landmark place room"),
    Adjective("beautiful", "सुंदर", "human animal thing text toy landmark place room"),
    Adjective("clever", "चतुर", ANIMATE),
    Adjective("long", "लंबा", "long"),
    Adjective("old", "पुराना", "thing text place room"),
    Adjective("old", "बूढ़ा", "grown animal"),
    Adjective("new", "नया", "thing text"),
    Adjective("black", "काला", "animal thing"),
    Adjective("white", "सफ़ेद", "animal thing toy"),
    Adjective("red", "लाल", "fruit thing toy"),
    Adjective("clean", "साफ़", "drink thing place room"),
    Adjective("fresh", "ताज़ा", "food drink"),
    Adjective("cold", "ठंडा", "drink"),
)

ADJECTIVES = MOODS + QUALITIES

THE = Determiner(("the", "the"), ("", "", "", ""))
BARE = Determiner((None, ""), ("", "", "", ""))  # "sells apples", "drinks milk"
THAT = Determiner(("that", "those"), ("वह", "वे", "उस", "उन"))
DETERMINERS = (
    THE,
    THAT,
    Determiner(("a", None), ("एक", "", "एक", "")),
    Determiner(("this", "these"), ("यह", "ये", "इस", "इन")),
    Determiner(("my", "my"), ("मेरा", "मेरा", "मेरा", "मेरा")),  # agrees, like an adjective
    Determiner((None, "two"), ("", "दो", "", "दो")),
    Determiner((None, "three"), ("", "तीन", "", "तीन")),
)

TIMES = (
    Adverb("every day", "रोज़", (Tense.PRESENT, Tense.USED_TO)),
    Adverb("often", "अक्सर", (Tense.PRESENT, Tense.USED_TO)),
    Adverb("now", "अभी", (Tense.PROGRESSIVE,)),
    Adverb("today", "आज", (Tense.PROGRESSIVE, Tense.PAST, Tense.FUTURE)),
    Adverb("yesterday", "कल", (Tense.PAST,)),
    Adverb("tomorrow", "कल", (Tense.FUTURE,)),
    Adverb("again", "फिर से", (Tense.PAST, Tense.FUTURE)),
)
MANNERS = (
    Adverb("quickly", "जल्दी से", tuple(Tense)),
    Adverb("quietly", "चुपचाप", tuple(Tense)),
)
DEGREES = {"very": "बहुत", "already": "पहले से"}
