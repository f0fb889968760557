"""Words for texts that people write."""

WORDS = (
    "the train leaves soon and we meet at station near old bridge bring your "
    "umbrella rain later dinner tonight maybe pasta or soup call me when home "
    "photo from garden looks great thanks happy birthday see you tomorrow ok "
    "where are tickets game starts seven good morning work late again sorry"
).split()


def sentence(rng, words):
    return " ".join(rng.choices(WORDS, k=words))
