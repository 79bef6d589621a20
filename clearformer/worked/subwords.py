"""Byte-pair encoding, merge by merge."""

from collections.abc import Iterator

from clearformer.text.merges import merge, watch
from clearformer.worked.example import Figure, worked


@worked("low", "low, lower, lowest, merge by merge", "Stanford lectures, p. 8, l.228-234", watch)
def low() -> Iterator[Figure]:
    """Each word counts once. l+o ties with o+w, and the older symbol wins; the notes start with l+o too."""
    words = "low lower lowest"
    steps = watch(words, n_merges=6)
    shown = [" ".join("+".join(symbols) for symbols in step.words) for step in steps]
    yield Figure("merge 1", "".join(steps[0].pair), "lo")
    yield Figure("words after merge 1", shown[0], expected="lo+w lo+w+e+r lo+w+e+s+t")
    yield Figure("merge 2", "".join(steps[1].pair), "low")
    yield Figure(
        "words after merge 3", shown[2], "low low+er low+est", "low lowe+r lowe+s+t",
        "low+e occurs twice, e+r and e+s once each: the third merge is lowe, so er and est never stand beside low",
    )  # fmt: skip
    yield Figure("merges until every word is one symbol", len(steps), expected=6)
    yield Figure("words after the last merge", shown[-1], expected=words)


@worked("conjugations", "eat, eats, eaten, ate: a word each, or shared pieces", "Stanford lectures, p. 8, l.209-219",
        watch, merge)  # fmt: skip
def conjugations() -> Iterator[Figure]:
    """Two merges make the stem a symbol; a new form is then known by its pieces, where a list of words has none."""
    words = "eat eats eaten ate"
    merges = watch(words, n_merges=2)
    yield Figure("entries of a list of words", len(set(words.split())), expected=4)
    yield Figure("symbols that the forms share after two merges", "".join(merges[-1].pair), expected="eat")
    holders = sum("eat" in symbols for symbols in merges[-1].words)
    yield Figure("forms that contain it; ate does not", holders, expected=3)
    eating = tuple("eating")
    for step in merges:
        eating = merge(eating, step.pair)
    yield Figure("eating, a novel word: unknown as a word, in pieces", "+".join(eating), expected="eat+i+n+g")
