"""Transliterates Devanagari to plain Latin letters, by pronunciation: बिल्ली चूहा खाती है, billi chuha khati hai.

Long and short vowels are written with the same letter, and so are dental and retroflex consonants, as Hindi speakers
type them. A consonant has a short *a* (the schwa) unless another vowel follows. Two kinds of schwa are silent: at the
end of a word (kitab), and between vowel + consonant and consonant + vowel (ladka from ladaka). They are dropped from
right to left, so that pakadta keeps its second a.
"""

import re

LETTERS = """
    क k   ख kh   ग g   घ gh   च ch   छ chh   ज j   झ jh   ट t   ठ th   ड d   ढ dh   ण n   त t   थ th   द d   ध dh   न n
    प p   फ ph   ब b   भ bh   म m   य y   र r   ल l   व v   श sh   ष sh   स s   ह h
    क़ q   ख़ kh   ग़ g   ज़ z   ड़ d   ढ़ dh   फ़ f
    अ a   आ a   इ i   ई i   उ u   ऊ u   ए e   ऐ ai   ओ o   औ au
    ा a   ि i   ी i   ु u   ू u   े e   ै ai   ो o   ौ au
"""
SOUNDS = dict(re.findall(r"(\S+) (\S+)", LETTERS))

SYLLABLE = re.compile(r"([क-ह]़?)?(्|[अ-औ]|[ा-ौ])?([ंँ])?")
SCHWA, SILENT = "ə", ""


def romanise(text: str) -> str:
    return re.sub(r"[ऀ-ॿ]+", lambda match: _word(match[0]), text)


def _word(word: str) -> str:
    """Transliterate a word: split it into (consonant, vowel, nasal) triples and drop the silent schwas."""
    triples = [match.groups(default="") for match in SYLLABLE.finditer(word) if match[0]]
    onsets = [SOUNDS.get(consonant, "") for consonant, _, _ in triples]
    nuclei = [SILENT if sign == "्" else SOUNDS[sign] if sign else SCHWA for _, sign, _ in triples]
    nasals = [mark for _, _, mark in triples]

    last = len(triples) - 1
    for i in range(last, 0, -1):
        is_between = i < last and nuclei[i - 1] and onsets[i + 1] and nuclei[i + 1]
        if nuclei[i] == SCHWA and not nasals[i] and (i == last or is_between):
            nuclei[i] = SILENT

    following = [*onsets[1:], ""]
    codas = ["" if not mark else "m" if after[:1] in ("p", "b", "m") else "n" for mark, after in zip(nasals, following)]
    return "".join(o + v.replace(SCHWA, "a") + c for o, v, c in zip(onsets, nuclei, codas))
