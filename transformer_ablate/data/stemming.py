"""A key that a word shares with its inflected forms, so that a family of words can be kept on one side of a split."""

from __future__ import annotations

SHORTEST_STEM = 2
_SUFFIXES = {"g": ("ing",), "d": ("ed",), "r": ("er",), "s": ("es", "s"), "y": ("ly",)}
_ENDINGS = {"e": ("e", ""), "i": ("i", "y"), "v": ("v", "f")}
_VOWELS = frozenset("aeiouy")


def stem(word: str) -> str:
    """The key of ``word`` (letters a-z): equal for a word and its forms in -s, -es, -ed, -ing, -er and -ly.

    Endings are taken off again and again until nothing comes off, together with the changes in spelling that go with
    them: silent e (bake, baking), doubled consonants (run, running), y and i (city, cities; die, dying), f and v (leaf,
    leaves), c and ck (panic, panicked), -le and -ly (gentle, gently), -ic, -ical and -ically. A key need not be a word,
    and unrelated words may share one (water and wat): that costs a split nothing, whereas a family that is torn apart
    lets a test word be looked up in training.
    """
    while (shorter := _without_ending(word)) != word:
        word = shorter
    return word


def _without_ending(word: str) -> str:
    """One step towards the stem; the word itself where there is none left. No two rules compete for one word's end, so
    that what a rule takes off never depends on what stood behind it."""
    last = word[-1]
    for suffix in _SUFFIXES.get(last, ()):
        if word.endswith(suffix) and len(word) >= len(suffix) + SHORTEST_STEM:
            return word[: -len(suffix)]
    if len(word) <= SHORTEST_STEM:
        return word[:-1] + "y" if last == "i" else word
    before = word[-2]
    if last == before:
        return word[:-1]
    if last in _ENDINGS:
        ending, replacement = _ENDINGS[last]
        return word[: -len(ending)] + replacement
    if last == "k" and before == "c":
        return word[:-1]
    if last == "l" and word.endswith("ical"):
        return word[:-2]
    if last == "l" and before not in _VOWELS:
        return word[:-1]
    return word
