"""Random words by counter: Philox4x32-10.

A draw depends on (seed, position) and on nothing else: not on how many draws came before, not on neighbours, not on drafts.
Key = the seed's two 32-bit words, low word first; counter = (position's low word, its high word, 0, 0);
u = (first word >> 8) * 2^-24, so 0 <= u < 1.  Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
1, 2, 3" (2011); test vectors of Random123 in `tests/unit/sampling`.  Does not know: logits, requests.
"""

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
LARGEST_SEED = (1 << 64) - 1


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of one counter; all are unsigned 32-bit numbers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & WORD, (first >> 32) ^ c3 ^ k1, first & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """Return u of the row at `position`: a multiple of 2^-24 in [0, 1)."""
    word = philox((position & WORD, position >> 32, 0, 0), (seed & WORD, seed >> 32))[0]
    return (word >> 8) * 2.0**-24
