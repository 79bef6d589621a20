"""The bundled corpus: English sentences and their Hindi, made by a grammar.

    The cat eats the mouse
    बिल्ली चूहा खाती है

    The man who pulled the cart when the king arrived was already tired
    वह आदमी जिसने राजा के पहुँचने पर गाड़ी खींची पहले से थका हुआ था

The Hindi is a function of the English, so a learner can reach a BLEU of 100. Getting there takes a
verb moved to the end, gender and number agreement with a subject or an object, oblique forms, and relative
clauses: the rules are in `grammar/hindi.py`, the words in `grammar/lexicon.py`. Two splits ask for more than
memory: one of word combinations never seen in training, one of relative clauses nested deeper than any there.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from clearformer.bundled.grammar import english, hindi, trees
from clearformer.bundled.grammar.lexicon import (
    ADJECTIVES,
    DEGREES,
    DETERMINERS,
    MANNERS,
    NOUNS,
    TIMES,
    VERBS,
    Number,
    Tense,
)
from clearformer.bundled.grammar.roman import romanise
from clearformer.bundled.grammar.speaker import Speaker
from clearformer.bundled.grammar.trees import Clause
from clearformer.errors import ConfigError, suggest

NOTICE = "synthetic corpus: English-Hindi pairs made by Clearformer's own grammar, not collected from speakers"

Script = Literal["devanagari", "roman"]


class Pair(NamedTuple):
    english: str
    hindi: str


def generate(n: int, seed: int = 0, depth: int = 1, script: Script = "devanagari") -> list[Pair]:
    """`n` pairs, no English sentence twice, with relative clauses nested up to `depth` deep."""
    return [_pair(clause, script) for clause in islice(_sentences(f"{seed}", range(depth + 1)), n)]


def splits(
    train: int = 16_000,
    valid: int = 500,
    test: int = 500,
    combinations: int = 500,
    deeper: int = 500,
    seed: int = 0,
    depth: int = 1,
    script: Script = "devanagari",
) -> dict[str, list[Pair]]:
    """Five lists of the given sizes, with no English sentence in two of them.

    train, valid, test    a random split: nested up to `depth` deep, without any held-out combination
    combinations          as deep, and each with at least one held-out combination
    deeper                nested exactly `depth + 1` deep, without any held-out combination

    Valid and test do not change with the size of train, so that learning curves compare.
    """
    shallow, deep = range(depth + 1), range(depth + 1, depth + 2)
    known = (clause for clause in _sentences(f"{seed} known", shallow) if not has_held_out(clause))
    novel = (clause for clause in _sentences(f"{seed} combinations", shallow) if has_held_out(clause))
    nested = (clause for clause in _sentences(f"{seed} deeper", deep) if not has_held_out(clause))

    def take(source: Iterator[Clause], n: int) -> list[Pair]:
        return [_pair(clause, script) for clause in islice(source, n)]

    fixed = {"valid": take(known, valid), "test": take(known, test)}
    return {
        "train": take(known, train),
        **fixed,
        "combinations": take(novel, combinations),
        "deeper": take(nested, deeper),
    }


def write_corpus(parts: Mapping[str, Sequence[Pair]], folder: Path) -> None:
    """Write each split as a .tsv file: train.tsv, valid.tsv and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in parts.items():
        lines = "".join(f"{pair.english}\t{pair.hindi}\n" for pair in pairs)
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8")


def is_held_out(first: str, second: str) -> bool:
    """Whether an (adjective, noun) or a (verb, object) is kept from training: about one in eight.

    By a hash of the English lemmas, so that the same ones are held out for every seed and on every machine.
    """
    return sha256(f"{first}/{second}".encode()).digest()[0] % 8 == 0


def has_held_out(clause: Clause) -> bool:
    return any(is_held_out(*pair) for pair in trees.combinations(clause))


def word_by_word(sentence: str, script: Script = "devanagari") -> str:
    """The baseline: each English word replaced by its plainest Hindi one, in the English order, unknown words kept."""
    words = (_dictionary().get(word, word) for word in sentence.lower().split())
    return _written(" ".join(word for word in words if word), script)


def _sentences(seed: str, depths: range) -> Iterator[Clause]:
    """Distinct sentences without end. Each level of depth is half as common as the one above it."""
    rng, said = Random(seed), set[str]()
    speaker, weights = Speaker(rng), [2.0**-depth for depth in depths]
    while True:
        clause = speaker.sentence(*rng.choices(depths, weights))
        if (text := english.sentence(clause)) not in said:
            said.add(text)
            yield clause


def _pair(clause: Clause, script: Script) -> Pair:
    return Pair(english.sentence(clause), _written(hindi.clause(clause), script))


def _written(devanagari: str, script: Script) -> str:
    if script == "devanagari":
        return devanagari
    if script == "roman":
        return romanise(devanagari)
    raise ConfigError(
        f"the bundled corpus is not written in the script `{script}`", suggest(script, ("devanagari", "roman"))
    )


@cache
def _dictionary() -> dict[str, str]:
    """English word forms to masculine, direct Hindi ones; *old* is पुराना, and *read* is the present."""
    entries = {"an": "एक", "who": "जो", "whom": "जिसे", "which": "जो", "when": "जब", "will": "", "used": ""}
    entries |= {"is": "है", "are": "हैं", "was": "था", "were": "थे", "be": "होगा", "every": "हर", "day": "दिन"}
    entries |= {"in": "में", "on": "पर", "under": "के नीचे", "near": "के पास", "with": "के साथ", "from": "से", "to": "को"}
    entries |= DEGREES | {adverb.english: adverb.hindi for adverb in TIMES + MANNERS}
    for determiner in DETERMINERS:
        entries |= {said: form for said, form in zip(determiner.english, determiner.hindi) if said}
    for noun in NOUNS:
        entries |= {noun.plural: hindi.decline(noun, Number.MANY), noun.singular: noun.hindi}
    for adjective in reversed(ADJECTIVES):
        entries[adjective.english] = adjective.hindi
    for verb in VERBS:
        base, third, past, ing = verb.english.split()
        entries[past] = hindi.conjugate(verb.stem, Tense.PAST, "m", Number.ONE)
        entries[ing] = f"{verb.stem} रहा"
        entries[third] = hindi.conjugate(verb.stem, Tense.PRESENT, "m", Number.ONE)
        entries[base] = hindi.conjugate(verb.stem, Tense.PRESENT, "m", Number.MANY)
    del entries["-"], entries[""]  # the -ing of verbs of state, the plural of mass nouns
    return entries
